#!lua flags=allow-oom
-- Says for a time what a node does. One that has left does not come back.
-- KEYS: node
-- ARGV: 1 "here" or "left", 2 for how many milliseconds.
-- Returns 1, or 0 if the node has left before.
if redis.call('GET', K.node) == 'left' then return 0 end
redis.call('SET', K.node, ARGV[1], 'PX', ARGV[2])
return 1

#!lua flags=allow-oom
-- Stores the state of a node for a time. A node that has left stays in that state.
-- KEYS: node
-- ARGV: 1 "here" or "left", 2 the expiry in milliseconds.
-- Returns 1, or 0 if the node has left before: then nothing was changed.
if redis.call('GET', K.node) == 'left' then return 0 end
redis.call('SET', K.node, ARGV[1], 'PX', ARGV[2])
return 1

#!lua flags=no-writes
-- Tells what a node does.
-- KEYS: node
-- ARGV: none.
-- Returns "here", "left" or "", and for how many more milliseconds.
return {redis.call('GET', K.node) or '', redis.call('PTTL', K.node)}

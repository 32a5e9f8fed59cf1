#!lua flags=no-writes
-- Reads the state of a node.
-- KEYS: node
-- ARGV: none.
-- Returns "here", "left" or "", and the milliseconds until that expires.
return {redis.call('GET', K.node) or '', redis.call('PTTL', K.node)}

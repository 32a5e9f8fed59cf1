#!lua flags=no-writes
-- Reads the settings of a queue.
-- KEYS: m
-- ARGV: none.
-- Returns {1, levels}, {0} if the queue does not exist.
local levels = redis.call('HGET', K.m, 'levels')
return levels and {1, levels} or {0}

#!lua flags=no-writes
-- Finds a waiting message by its id. It changes nothing.
-- KEYS: m t d l g
-- ARGV: 1 the message's id, as the key of generation 0.
-- Returns {1, key, value, its time or ''}, {0} if the queue does not exist, {4} if no such message
-- waits.
if redis.call('EXISTS', K.m) == 0 then return {0} end
local key, value, at = waiting(ARGV[1])
if not key then return {4} end
return {1, key, value, at or ''}

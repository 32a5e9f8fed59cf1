#!lua flags=no-writes
-- Finds a message that waits.
-- KEYS: m t d l g
-- ARGV: 1 the message's id, as a key.
-- Returns {1, key, value, its time or ''}, {0} if there is no such queue, {4} if there is no such message.
if redis.call('EXISTS', K.m) == 0 then return {0} end
local key, value, at = waiting(ARGV[1])
if not key then return {4} end
return {1, key, value, at or ''}

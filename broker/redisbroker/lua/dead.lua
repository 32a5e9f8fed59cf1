#!lua flags=no-writes
-- Reads dead letters, the oldest first.
-- KEYS: m x
-- ARGV: 1 the first place, from 0, 2 the last.
-- Returns {1, letter, letter, ...}, {0} if there is no such queue.
if redis.call('EXISTS', K.m) == 0 then return {0} end
local letters = redis.call('LRANGE', K.x, ARGV[1], ARGV[2])
table.insert(letters, 1, 1)
return letters

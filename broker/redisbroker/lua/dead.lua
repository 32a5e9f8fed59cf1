#!lua flags=no-writes
-- Reads dead letters, the oldest first.
-- ARGV: 1 the first place, from 0, 2 the last.
-- Returns {1, letter, letter, ...}, {0} if there is no such queue.
if redis.call('EXISTS', K[1]) == 0 then return {0} end
local letters = redis.call('LRANGE', K[10], ARGV[1], ARGV[2])
table.insert(letters, 1, 1)
return letters

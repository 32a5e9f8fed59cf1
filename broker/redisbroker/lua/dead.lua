#!lua flags=allow-oom
-- Reads dead letters, the oldest first. Before that it drops the letters that are too old.
-- KEYS: m x
-- ARGV: in this order:
--   1  the index of the first letter to read, from 0
--   2  the index of the last
--   3  the letter before the first one, '' if it is not known
--   4  the maximum age of a letter in microseconds, 0: no limit
-- Returns {1, number of letters in all, index of the first one read, letter, letter, ...}. Returns
-- {0} if the queue does not exist.
--
-- If letter 3 is no longer before the given index, other letters were removed: both indexes move
-- with it. If letter 3 was removed too, reading begins at index 0.
if redis.call('EXISTS', K.m) == 0 then return {0} end
trimold(tonumber(ARGV[4]))
local from, to = tonumber(ARGV[1]), tonumber(ARGV[2])
if ARGV[3] ~= '' and redis.call('LINDEX', K.x, from - 1) ~= ARGV[3] then
  local place = redis.call('LPOS', K.x, ARGV[3])
  local moved = from - (place and place + 1 or 0)
  from, to = from - moved, to - moved
end
local letters = redis.call('LRANGE', K.x, from, to)
local answer = {1, redis.call('LLEN', K.x), from}
for i = 1, #letters do answer[i + 3] = letters[i] end
return answer

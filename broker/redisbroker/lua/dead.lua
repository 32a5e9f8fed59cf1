#!lua flags=allow-oom
-- Reads dead letters, the oldest first. Those that are too old are dropped before.
-- KEYS: m x
-- ARGV: 1 the first place, from 0, 2 the last, 3 the letter that stands before the first, if it is known, 4 the age in
-- microseconds that a letter may have, 0: any.
-- Returns {1, how many letters there are, the place of the first, letter, letter, ...}, {0} if there is no such queue. Where the
-- letter that ARGV 3 says has moved, since others in front of it were removed, the places move with it; where it is gone, they
-- begin at 0.
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

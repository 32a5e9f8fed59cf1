#!lua flags=allow-oom
-- Reads dead letters, the oldest first. Those that are too old are dropped before.
-- KEYS: m x
-- ARGV: 1 the first place, from 0, 2 the last, 3 the letter that stands before the first, if it is known, 4 the age in
-- microseconds that a letter may have, 0: any.
-- Returns {1, how many letters there are, letter, letter, ...}, {0} if there is no such queue, {4} if another letter stands
-- before the first: some were removed.
if redis.call('EXISTS', K.m) == 0 then return {0} end
trimold(tonumber(ARGV[4]))
if ARGV[3] ~= '' and redis.call('LINDEX', K.x, ARGV[1] - 1) ~= ARGV[3] then return {4} end
local letters = redis.call('LRANGE', K.x, ARGV[1], ARGV[2])
local answer = {1, redis.call('LLEN', K.x)}
for i = 1, #letters do answer[i + 2] = letters[i] end
return answer

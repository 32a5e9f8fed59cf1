-- Returns the use of a limit and changes nothing.
--
-- KEYS[1], KEYS[2], KEYS[3]  the keys of the limit, as in limit.lua
-- ARGV[1]                    the largest number of returned holders
-- returns                    the held weight; the microseconds for which the rate is used ahead;
--                            then for each holder its name, its weight, and the microseconds until
--                            its lease ends

local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
local used = tonumber(redis.call('GET', KEYS[3]) or '0')
local out = {0, math.max(0, used - now)}
local holders = redis.call('ZRANGEBYSCORE', KEYS[1], '(' .. string.format('%.0f', now), '+inf', 'WITHSCORES')
for i = 1, #holders, 2 do
  local weight = tonumber(redis.call('HGET', KEYS[2], holders[i]) or '0')
  out[1] = out[1] + weight
  if i < 2 * tonumber(ARGV[1]) then
    out[#out + 1] = holders[i]
    out[#out + 1] = weight
    out[#out + 1] = tonumber(holders[i + 1]) - now
  end
end
return out

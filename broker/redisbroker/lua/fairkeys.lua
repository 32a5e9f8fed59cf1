#!lua flags=no-writes
-- Reads names of fairness keys, or the states of some. It changes nothing.
-- KEYS: m r
-- ARGV: 1 the levels as the caller knows them. To read names:
--   2  names
--   3  what to read: 1 b, 2 u, 3 q, then k of each level
--   4  the cursor of HSCAN or ZSCAN
-- To read states:
--   2  states
--   3  and following: the names
-- Returns one of these:
--   - {1, the next to read or 0, the next cursor, name, name, ...}: a name may come twice
--   - {1, the time up to which the rate of the queue is used or '', 1 if held messages are counted,
--     otherwise 0, then for each name: number of ready messages, number of held ones, the oldest stamp
--     or '', the time up to which the rate of the key is used or ''}
--   - {0} if the queue does not exist, {2, levels} if it has other levels
-- Times are in microseconds, and stamps in seconds, since 1970. A time that is over is ''.
local levels = redis.call('HGET', K.m, 'levels')
if not levels then return {0} end
if levels ~= ARGV[1] then return {2, levels} end
local base, places = string.sub(K.m, 1, -2), math.max(1, #bounds(levels))
if ARGV[2] == 'names' then
  local place, got = tonumber(ARGV[3]), nil
  if place == 1 or place == 3 then
    got = redis.call('HSCAN', base .. (place == 1 and 'b' or 'q'), ARGV[4], 'COUNT', 1000)
  else
    got = redis.call('ZSCAN', base .. (place == 2 and 'u' or 'k' .. place - 4), ARGV[4], 'COUNT', 1000)
  end
  if got[1] == '0' then place = place < 3 + places and place + 1 or 0 end
  local out = {1, place, got[1]}
  for i = 1, #got[2], 2 do out[#out + 1] = got[2][i] end
  return out
end

local now = clock()
-- later returns a time, or '' if it is over or false.
local function later(at) return at and tonumber(at) > now and at or '' end

local meta = redis.call('HMGET', K.m, 'used', 'counted')
local out = {1, later(meta[1]), meta[2] and 1 or 0}
for i = 3, #ARGV do
  local ready, oldest = 0, ''
  for place = 0, places - 1 do
    local line = redis.call('HGET', base .. 'f' .. place, ARGV[i])
    for element in string.gmatch(line and string.sub(line, 2) or '', '[^\n]+') do
      ready = ready + 1
      local stamp = string.byte(element, 1) == 9 and tonumber(string.sub(element, 2, 9), 16)
      if stamp and (oldest == '' or stamp < oldest) then oldest = stamp end
    end
    if line and string.byte(line, 1) == 43 then ready = ready + redis.call('LLEN', base .. 'f' .. place .. ':' .. ARGV[i]) end
  end
  out[#out + 1] = ready
  out[#out + 1] = tonumber(redis.call('HGET', base .. 'b', ARGV[i]) or 0)
  out[#out + 1] = oldest
  out[#out + 1] = later(redis.call('ZSCORE', base .. 'u', ARGV[i]))
end
return out

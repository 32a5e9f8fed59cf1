#!lua flags=no-writes
-- Lists messages of a queue. It changes nothing.
-- KEYS: m t d l o s r
-- ARGV: in this order:
--   1  the levels as the caller knows them
--   2  the place: waiting, delayed or held
--   3  where the page begins: 0 is d, and from 1 on it is the number of a ready list
--   4  the index there; for held the cursor of HSCAN
--   5  the maximum number of messages
--   6  the approximate maximum of bytes
-- Returns {1, where the next page begins, index there, key, value, time, key, value, time, ...}. The
-- next page begins at -1 if there is none. A time is '' if it is not known. A JSON task that another
-- program pushed has the key ''. For held the numbers 5 and 6 are no limits. Returns {0} if the
-- queue does not exist, {2, levels} if it has other levels.
local levels = redis.call('HGET', K.m, 'levels')
if not levels then return {0} end
if levels ~= ARGV[1] then return {2, levels} end
local place, section, index = ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local want, budget = tonumber(ARGV[5]), tonumber(ARGV[6])
local out = {1, -1, 0}

-- show adds a message to the answer.
local function show(key, value, time)
  out[#out + 1] = key
  out[#out + 1] = value
  out[#out + 1] = time or ''
  want = want - 1
  budget = budget - #value
end

if place == 'held' then
  local got = redis.call('HSCAN', K.l, ARGV[4], 'COUNT', want)
  out[2], out[3] = got[1] == '0' and -1 or 0, got[1]
  for i = 1, #got[2], 2 do
    local key, owner = got[2][i], string.match(got[2][i + 1], '^(%d+)%.')
    local value = owner and redis.call('HGET', K.t, key)
    if value then show(key, value, redis.call('ZSCORE', K.o, owner)) end
  end
  return out
end

-- delayed messages that are due wait
local due = redis.call('ZCOUNT', K.d, '-inf', clock())
if section == 0 then
  local last = -1
  if place == 'waiting' then
    last = due - 1
  else
    index = math.max(index, due)
  end
  if place ~= 'waiting' or index <= last then
    local got = redis.call('ZRANGE', K.d, index, place == 'waiting' and math.min(last, index + want) or index + want, 'WITHSCORES')
    for i = 1, #got, 2 do
      if want <= 0 or budget <= 0 then
        out[2], out[3] = 0, index
        return out
      end
      show(got[i], redis.call('HGET', K.t, got[i]) or '', got[i + 1])
      index = index + 1
    end
  end
  if place == 'delayed' then return out end
  section, index = 1, 0
end

local ghosts = redis.call('EXISTS', K.s) == 1
for list = section, math.max(1, #bounds(levels)) do
  local got = redis.call('LRANGE', K.r(list), index, index + want)
  while #got > 0 do
    for i = 1, #got do
      if want <= 0 or budget <= 0 then
        out[2], out[3] = list, index
        return out
      end
      local key = got[i]
      local value = redis.call('HGET', K.t, key)
      if not value and string.byte(key, 1) == 123 then -- '{': a JSON task that another program pushed
        show('', key)
      elseif value and not (ghosts and (redis.call('HEXISTS', K.l, key) == 1 or redis.call('ZSCORE', K.d, key))) then
        show(key, value)
      end
      index = index + 1
    end
    got = redis.call('LRANGE', K.r(list), index, index + want)
  end
  index = 0
end
return out

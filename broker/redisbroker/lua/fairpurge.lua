#!lua flags=allow-oom
-- Removes ready messages of a fair queue, at most a given number.
-- KEYS: m t n s g r
-- ARGV: 1 the levels as the caller knows them, 2 the maximum number.
-- Returns {1, number of removed messages, number of removed elements and fairness keys}. Returns {0}
-- if the queue does not exist, {2, levels} if it has other levels.
local levels = redis.call('HGET', K.m, 'levels')
if not levels then return {0} end
if levels ~= ARGV[1] then return {2, levels} end
local list = bounds(levels)
absorb(list)
unparksome(list.fair, 1000)
local most, removed, seen, old = tonumber(ARGV[2]), 0, 0, {}
for place = 1, math.max(1, #list) do
  local zset, hash = list.fair .. 'k' .. place - 1, list.fair .. 'f' .. place - 1
  local names = most > 0 and redis.call('ZRANGE', zset, 0, most - 1) or {}
  local lines = #names > 0 and redis.call('HMGET', hash, unpack(names))
  local keys, stamps, gone, empty = {}, {}, {}, {}
  for i = 1, #names do
    if #keys >= most then break end
    seen = seen + 1
    local line = lines[i] and cut(hash .. ':', names[i], lines[i], most - #keys, keys, stamps)
    if line then
      redis.call('HSET', hash, names[i], line)
    else
      empty[#empty + 1] = names[i]
    end
  end
  for i = 1, #keys do
    old[stamps[i]] = (old[stamps[i]] or 0) + 1
    if not passed(place, keys[i]) then gone[#gone + 1] = keys[i] end
  end
  if #gone > 0 then forget(K.t, K.n, K.g, gone) end
  if #empty > 0 then
    redis.call('HDEL', hash, unpack(empty))
    redis.call('ZREM', zset, unpack(empty))
    redis.call('HDEL', list.fair .. 'w' .. place - 1, unpack(empty))
  end
  retire(list, place)
  most = most - #keys
  removed = removed + #gone
end
departed(list, old)
return {1, removed, seen}

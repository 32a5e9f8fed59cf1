-- Functions that several scripts share. Those that a script uses, by itself or through others, stand before its own text.
-- See ../doc.go for what each key holds.
-- KEYS in all scripts: 1 m, 2 t, 3 d, 4 l, 5 o, 6 c, 7 n, 8 s, 9 g, 10 x, 11 and following: r0, r1, ...
local K = KEYS

-- clock returns the server's time in microseconds.
local function clock()
  local t = redis.call('TIME')
  return t[1] * 1000000 + t[2]
end

-- bounds takes the levels of a queue apart, as the table m holds them.
local function bounds(levels)
  local list = {}
  for bound in string.gmatch(levels, '-?%d+') do list[#list + 1] = tonumber(bound) end
  return list
end

-- level returns the place of a stored message among the ready lists, from 1.
local function level(list, value)
  if #list < 2 then return 1 end
  local priority = 100
  if value and string.byte(value, 1) == 1 and #value >= 5 then priority = struct.unpack('>i4', value, 2) end
  for i = 1, #list do
    if priority <= list[i] then return i end
  end
  return #list
end

-- wake tells the waiting consumers, if there are any (idle is field idle of m), that there may be something for them.
local function wake(idle, channel)
  if idle then
    redis.call('HDEL', K[1], 'idle')
    redis.call('PUBLISH', channel, '')
  end
end

-- index notes or forgets in g that a key of a later generation exists.
local function index(key, exists)
  local id, generation = string.match(key, '^(.*) (%d+)$')
  if not id then return end
  local rest = {}
  for other in string.gmatch(redis.call('HGET', K[9], id) or '', '%d+') do
    if other ~= generation then rest[#rest + 1] = other end
  end
  if exists then rest[#rest + 1] = generation end
  if #rest > 0 then
    redis.call('HSET', K[9], id, table.concat(rest, ' '))
  else
    redis.call('HDEL', K[9], id)
  end
end

-- forget removes all that is known of keys whose messages are gone.
local function forget(keys)
  redis.call('HDEL', K[2], unpack(keys))
  if redis.call('EXISTS', K[7]) == 1 then redis.call('HDEL', K[7], unpack(keys)) end
  if redis.call('EXISTS', K[9]) == 1 then
    for i = 1, #keys do index(keys[i], false) end
  end
end

-- put makes keys ready, in their order: in front of what waits, or behind it.
local function put(list, keys, front)
  local lists = {}
  local values = #list > 1 and redis.call('HMGET', K[2], unpack(keys)) or {}
  for i = 1, #keys do
    local place = level(list, values[i])
    local to = lists[place]
    if not to then
      to = {}
      lists[place] = to
    end
    to[#to + 1] = keys[i]
  end
  for place, to in pairs(lists) do
    if front then -- the last argument becomes the first element
      local turned = {}
      for i = #to, 1, -1 do turned[#turned + 1] = to[i] end
      redis.call('LPUSH', K[10 + place], unpack(turned))
    else
      redis.call('RPUSH', K[10 + place], unpack(to))
    end
  end
end

-- ghost leaves behind a mark to pass over a key that stays in a ready list although its message has gone.
local function ghost(place, key)
  redis.call('HINCRBY', K[8], place .. ' ' .. key, 1)
  redis.call('HINCRBY', K[1], 'ghosts', 1)
end

-- passed reports whether an element of a ready list is only a ghost, and forgets it then.
local function passed(place, key)
  local field = place .. ' ' .. key
  if not redis.call('HGET', K[8], field) then return false end
  if redis.call('HINCRBY', K[8], field, -1) <= 0 then redis.call('HDEL', K[8], field) end
  if redis.call('HINCRBY', K[1], 'ghosts', -1) <= 0 then redis.call('HDEL', K[1], 'ghosts') end
  return true
end

-- held returns which of keys are held under the given claims.
local function held(keys, claims)
  local under = redis.call('HMGET', K[4], unpack(keys))
  local ours = {}
  for i = 1, #keys do ours[i] = under[i] == claims[i] end
  return ours
end

-- claimed returns the keys that are still held under a claim.
local function claimed(claim)
  local keys = {}
  for key in string.gmatch(redis.call('HGET', K[6], claim) or '', '[^\n]+') do
    if redis.call('HGET', K[4], key) == claim then keys[#keys + 1] = key end
  end
  return keys
end

-- reclaim puts back to the front what an owner holds, of some claims in each call, and forgets these. It returns how many
-- messages that were, and whether there may be more.
local function reclaim(list, owner, counted)
  local last, open = string.match(redis.call('HGET', K[6], owner) or '', '^(%d+):(.*)$')
  local moved, left = 0, {}
  for place in string.gmatch(open or '', '%d+') do
    local claim = owner .. '.' .. place
    if moved >= 200 then
      left[#left + 1] = place
    else
      local keys = claimed(claim)
      if #keys > 0 then
        redis.call('HDEL', K[4], unpack(keys))
        if counted then
          for j = 1, #keys do redis.call('HINCRBY', K[7], keys[j], 1) end
        end
        put(list, keys, true)
        moved = moved + #keys
      end
      redis.call('HDEL', K[6], claim)
    end
  end
  if #left > 0 then
    redis.call('HSET', K[6], owner, last .. ':' .. table.concat(left, ','))
    return moved, true
  end
  redis.call('ZREM', K[5], owner)
  redis.call('HDEL', K[6], owner)
  return moved, false
end

-- waiting returns the key of a message that waits, given the message's id as a key without generation, with its value and its
-- time (false: it is ready).
local function waiting(id)
  local keys = {id}
  for generation in string.gmatch(redis.call('HGET', K[9], id) or '', '%d+') do
    keys[#keys + 1] = id .. ' ' .. generation
  end
  for i = #keys, 1, -1 do
    local value = redis.call('HGET', K[2], keys[i])
    if value and redis.call('HEXISTS', K[4], keys[i]) == 0 then
      return keys[i], value, redis.call('ZSCORE', K[3], keys[i])
    end
  end
end

-- add stores messages that are no repetition and makes them ready, or has them wait for their times. pairs_ is key, value, key,
-- value, ...; times, where there are any, belong to the last of them.
local function add(meta, channel, count, pairs_, times)
  local keys = {}
  for i = 1, count do keys[i] = pairs_[2 * i - 1] end
  local have = redis.call('HMGET', K[2], unpack(keys))
  local now = #times > 0 and clock() or 0
  local stored, ready, later, first = {}, {}, {}, nil
  for i = 1, count do
    local key = keys[i]
    if not have[i] and not have[key] then
      have[key] = true -- twice in one batch
      stored[#stored + 1] = key
      stored[#stored + 1] = pairs_[2 * i]
      local at = tonumber(times[i - count + #times] or 0)
      if at > now then
        later[#later + 1] = times[i - count + #times]
        later[#later + 1] = key
        if not first or at < first then first = at end
      else
        ready[#ready + 1] = key
      end
    end
  end
  if #stored == 0 then return end
  redis.call('HSET', K[2], unpack(stored))
  for i = 1, #stored, 2 do
    if string.find(stored[i], ' ', 1, true) then index(stored[i], true) end
  end
  local news = #ready > 0
  if news then put(bounds(meta[1]), ready, false) end
  if first then
    local next = redis.call('ZRANGE', K[3], 0, 0, 'WITHSCORES')
    news = news or not next[2] or first < tonumber(next[2])
    redis.call('ZADD', K[3], unpack(later))
  end
  if news then wake(meta[2], channel) end
end

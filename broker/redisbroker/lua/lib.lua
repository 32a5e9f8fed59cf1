-- Functions that several scripts share. Those that a script uses, by itself or through others, stand before its own text.
-- See ../doc.go for what each key holds. A script's line "-- KEYS:" names its keys in their order; K.t then is the key of the
-- table t, and K.r(i) that of the i-th list of ready messages, from 1: these come last.

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
    redis.call('HDEL', K.m, 'idle')
    redis.call('PUBLISH', channel, '')
  end
end

-- index notes or forgets in a table g that a key of a later generation exists.
local function index(g, key, exists)
  local id, generation = string.match(key, '^(.*) (%d+)$')
  if not id then return end
  local rest = {}
  for other in string.gmatch(redis.call('HGET', g, id) or '', '%d+') do
    if other ~= generation then rest[#rest + 1] = other end
  end
  if exists then rest[#rest + 1] = generation end
  if #rest > 0 then
    redis.call('HSET', g, id, table.concat(rest, ' '))
  else
    redis.call('HDEL', g, id)
  end
end

-- forget removes from the tables t, n and g all that is known of keys whose messages are gone.
local function forget(t, n, g, keys)
  redis.call('HDEL', t, unpack(keys))
  if redis.call('EXISTS', n, g) > 0 then
    redis.call('HDEL', n, unpack(keys))
    for i = 1, #keys do index(g, keys[i], false) end
  end
end

-- put makes keys ready, in their order: in front of what waits, or behind it.
local function put(list, keys, front)
  local lists = {}
  local values = #list > 1 and redis.call('HMGET', K.t, unpack(keys)) or {}
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
      redis.call('LPUSH', K.r(place), unpack(turned))
    else
      redis.call('RPUSH', K.r(place), unpack(to))
    end
  end
end

-- ghost leaves behind a mark to pass over a key that stays in a ready list although its message has gone.
local function ghost(place, key)
  redis.call('HINCRBY', K.s, place .. ' ' .. key, 1)
  redis.call('HINCRBY', K.m, 'ghosts', 1)
end

-- passed reports whether an element of a ready list is only a ghost, and forgets it then.
local function passed(place, key)
  local field = place .. ' ' .. key
  if not redis.call('HGET', K.s, field) then return false end
  if redis.call('HINCRBY', K.s, field, -1) <= 0 then redis.call('HDEL', K.s, field) end
  if redis.call('HINCRBY', K.m, 'ghosts', -1) <= 0 then redis.call('HDEL', K.m, 'ghosts') end
  return true
end

-- claimed returns the keys that are still held under a claim.
local function claimed(claim)
  local keys = {}
  for key in string.gmatch(redis.call('HGET', K.c, claim) or '', '[^\n]+') do
    if redis.call('HGET', K.l, key) == claim then keys[#keys + 1] = key end
  end
  return keys
end

-- reclaim puts back to the front what an owner holds, of some claims in each call, and forgets these. It returns how many
-- messages that were, and whether there may be more.
local function reclaim(list, owner, counted)
  local last, open = string.match(redis.call('HGET', K.c, owner) or '', '^(%d+):(.*)$')
  local moved, left = 0, {}
  for place in string.gmatch(open or '', '%d+') do
    local claim = owner .. '.' .. place
    if moved >= 200 then
      left[#left + 1] = place
    else
      local keys = claimed(claim)
      if #keys > 0 then
        redis.call('HDEL', K.l, unpack(keys))
        if counted then
          for j = 1, #keys do redis.call('HINCRBY', K.n, keys[j], 1) end
        end
        put(list, keys, true)
        moved = moved + #keys
      end
      redis.call('HDEL', K.c, claim)
    end
  end
  if #left > 0 then
    redis.call('HSET', K.c, owner, last .. ':' .. table.concat(left, ','))
    return moved, true
  end
  redis.call('ZREM', K.o, owner)
  redis.call('HDEL', K.c, owner)
  return moved, false
end

-- waiting returns the key of a message that waits, given the message's id as a key without generation, with its value and its
-- time (false: it is ready).
local function waiting(id)
  local keys = {id}
  for generation in string.gmatch(redis.call('HGET', K.g, id) or '', '%d+') do
    keys[#keys + 1] = id .. ' ' .. generation
  end
  for i = #keys, 1, -1 do
    local value = redis.call('HGET', K.t, keys[i])
    if value and redis.call('HEXISTS', K.l, keys[i]) == 0 then
      return keys[i], value, redis.call('ZSCORE', K.d, keys[i])
    end
  end
end

-- add stores messages that are no repetition and makes them ready, or has them wait for their times. pairs_ is key, value, key,
-- value, ...; times, where there are any, belong to the last of them.
local function add(meta, channel, count, pairs_, times)
  local keys = {}
  for i = 1, count do keys[i] = pairs_[2 * i - 1] end
  local have = redis.call('HMGET', K.t, unpack(keys))
  local now = #times > 0 and clock() or 0
  local stored, ready, later, first = {}, {}, {}, nil
  for i = 1, count do
    local key = keys[i]
    if not have[i] and not have[key] then
      have[key] = true -- twice in one batch
      stored[#stored + 1] = key
      stored[#stored + 1] = pairs_[2 * i]
      local time = times[i - count + #times]
      local at = time and tonumber(time) or 0
      if at > now then
        later[#later + 1] = time
        later[#later + 1] = key
        if not first or at < first then first = at end
      else
        ready[#ready + 1] = key
      end
    end
  end
  if #stored == 0 then return end
  redis.call('HSET', K.t, unpack(stored))
  for i = 1, #stored, 2 do
    if string.find(stored[i], ' ', 1, true) then index(K.g, stored[i], true) end
  end
  local news = #ready > 0
  if news then put(bounds(meta[1]), ready, false) end
  if first then
    local next = redis.call('ZRANGE', K.d, 0, 0, 'WITHSCORES')
    news = news or not next[2] or first < tonumber(next[2])
    redis.call('ZADD', K.d, unpack(later))
  end
  if news then wake(meta[2], channel) end
end

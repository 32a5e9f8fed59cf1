-- Functions that several scripts share. loadScript in ../scripts.go puts the functions that a
-- script uses, directly or through others, before the script's own text. They are those of this
-- file, of bounds.lua, of plain.lua or fair.lua, and of moves.lua, in this order.
--
-- A line that ends with "-- of plain queues" or "-- of fair queues" is only in the scripts for those.
--
-- ../doc.go describes the content of each key. A script's line "-- KEYS:" names its keys in their
-- order. K.t is the key of the table t. K.r(i) is the key of ready list number i, from 1; r, the
-- ready lists, come last. In a script for fair queues K.r() also has the sets of fairness keys.

-- clock returns the server's time in microseconds since 1970.
local function clock()
  local t = redis.call('TIME')
  return t[1] * 1000000 + t[2]
end

-- due returns the time in text, in microseconds on the server's clock. text is that time, or '+'
-- and the microseconds from now.
local function due(text, now)
  local wait = string.match(text, '^%+(%d+)$')
  return wait and now + wait or tonumber(text)
end

-- level returns the number of the ready list for the stored message value, from 1. list holds the
-- level bounds. A JSON task, or no value, has the priority 100.
local function level(list, value)
  if #list < 2 then return 1 end
  local priority = 100
  if value and string.byte(value, 1) == 1 and #value >= 5 then priority = struct.unpack('>i4', value, 2) end
  for i = 1, #list do
    if priority <= list[i] then return i end
  end
  return #list
end

-- passes returns the levels in which take looks, one after the other, and for each how many messages
-- it takes there at most. Of the messages, lower begin at less urgent levels: at those with messages
-- below the most urgent one with messages, in rotation. turn says where the rotation begins.
local function passes(list, lower, turn)
  local order, most, places = {}, {}, math.max(1, #list)
  if lower > 0 then
    local full = {}
    for place = 1, places do
      if redis.call('EXISTS', list.fair and list.fair .. 'k' .. place - 1 or K.r(place)) == 1 then full[#full + 1] = place end
    end
    local below = #full - 1
    for i = 1, math.min(below, lower) do
      order[i] = full[2 + (turn + i - 1) % below]
      most[i] = math.floor((lower - i) / below) + 1
    end
  end
  for place = 1, places do
    order[#order + 1] = place
    most[#order] = math.huge
  end
  return order, most
end

-- index adds the generation of a key to the table g if exists is true, or removes it. A key of
-- generation 0 has no entry: index does nothing.
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

-- forget removes the entries of the given keys from the tables t, n and g: stored messages,
-- delivery counts and generations. Their messages no longer exist.
local function forget(t, n, g, keys)
  redis.call('HDEL', t, unpack(keys))
  if redis.call('EXISTS', n, g) > 0 then
    redis.call('HDEL', n, unpack(keys))
    for i = 1, #keys do index(g, keys[i], false) end
  end
end

-- ghost records that one element of ready list number place is to be skipped: the message of key
-- was deleted, but its key stays in the list.
local function ghost(place, key)
  redis.call('HINCRBY', K.s, place .. ' ' .. key, 1)
  redis.call('HINCRBY', K.m, 'ghosts', 1)
end

-- passed reports whether an element of ready list number place is one that ghost recorded. If so it
-- removes one such record.
local function passed(place, key)
  local field = place .. ' ' .. key
  if not redis.call('HGET', K.s, field) then return false end
  if redis.call('HINCRBY', K.s, field, -1) <= 0 then redis.call('HDEL', K.s, field) end
  if redis.call('HINCRBY', K.m, 'ghosts', -1) <= 0 then redis.call('HDEL', K.m, 'ghosts') end
  return true
end

-- nudge notifies a waiting owner, so that it claims. h is the key of the waiting owners. It tries up
-- to 4 of them, until the channel of one has a listener. The owners that it tried are no longer among
-- the waiting ones. Returns false if no owner waits.
local function nudge(h, channel)
  for _ = 1, 4 do
    local owner = redis.call('ZPOPMIN', h)[1]
    if not owner then return false end
    if redis.call('PUBLISH', channel .. owner, '') > 0 then break end
  end
  return true
end

-- trimold drops the dead letters that are older than age, in microseconds, from the oldest on, and
-- counts them in m. 0: it drops none.
local function trimold(age)
  if age <= 0 then return end
  local oldest, dropped = (clock() - age) / 1000000, 0
  while true do
    local letter = redis.call('LINDEX', K.x, 0)
    if not letter or #letter < 14 or struct.unpack('>I4', letter) >= oldest then break end
    redis.call('LPOP', K.x)
    dropped = dropped + 1
  end
  if dropped > 0 then redis.call('HINCRBY', K.m, 'deaddropped', dropped) end
end

-- deadletter adds a dead letter and drops the letters beyond the limits, which it counts in m.
-- ../doc.go describes the stored form. ARGV holds, from index place on:
--
--   - the reason, the stack, the attempts
--   - the time in microseconds since 1970, 0: now
--   - the maximum age of a letter in microseconds, 0: no limit
--   - the maximum number of letters, 0: no limit
local function deadletter(key, value, place)
  local notes, stack, attempts = ARGV[place], ARGV[place + 1], tonumber(ARGV[place + 2])
  local at, age, most = tonumber(ARGV[place + 3]), tonumber(ARGV[place + 4]), tonumber(ARGV[place + 5])
  if at <= 0 then at = clock() end
  local mark = 0
  if stack ~= '' or attempts > 0 then
    notes = notes .. stack .. struct.pack('>I4I4', attempts, #stack)
    mark = 1048576
  end
  redis.call('RPUSH', K.x, struct.pack('>I4I4I2I4', math.floor(at / 1000000), at % 1000000 + mark, #key, #notes) .. key .. notes .. value)
  trimold(age)
  local over = most > 0 and redis.call('LLEN', K.x) - most or 0
  if over > 0 then
    redis.call('LTRIM', K.x, over, -1)
    redis.call('HINCRBY', K.m, 'deaddropped', over)
  end
end

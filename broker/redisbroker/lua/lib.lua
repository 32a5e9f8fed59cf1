-- Functions that several scripts share. Those that a script uses, by itself or through others, stand before its own text.
-- See ../doc.go for what each key holds. A script's line "-- KEYS:" names its keys in their order; K.t then is the key of the
-- table t, and K.r(i) that of the i-th list of ready messages, from 1: these come last.

-- clock returns the server's time in microseconds.
local function clock()
  local t = redis.call('TIME')
  return t[1] * 1000000 + t[2]
end

-- due returns the time that a caller has given, in microseconds on the server's clock. The text is
-- that time, or '+' and the microseconds from now.
local function due(text, now)
  local wait = string.match(text, '^%+(%d+)$')
  return wait and now + wait or tonumber(text)
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
  local all, keys = {}, {}
  for key in string.gmatch(redis.call('HGET', K.c, claim) or '', '[^\n]+') do all[#all + 1] = key end
  if #all == 0 then return keys end
  local under = redis.call('HMGET', K.l, unpack(all))
  for i = 1, #all do
    if under[i] == claim then keys[#keys + 1] = all[i] end
  end
  return keys
end

-- reclaim puts back to the front what an owner holds, of some claims in each call, and forgets these. It returns how many
-- messages that were, and whether there may be more.
local function reclaim(list, owner, counted)
  local head, open = string.match(redis.call('HGET', K.c, owner) or '', '^(%d+:%d+:%a:)(.*)$')
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
    redis.call('HSET', K.c, owner, head .. table.concat(left, ','))
    return moved, true
  end
  redis.call('ZREM', K.o, owner)
  redis.call('ZREM', K.h, owner)
  redis.call('HDEL', K.c, owner)
  return moved, false
end

-- settle compares an owner's record of open claims with what the owner itself knows, open, of its claims before a place: what
-- the owner has settled is forgotten. Where the server still holds something under such a claim, its data have gone back in
-- time, in a failover or a crash, and that goes back to the front, since nobody else would ever give it back. It returns
-- whether there was any.
local function settle(list, owner, recorded, open, before)
  local known, over = {}, {}
  for place in string.gmatch(open, '%d+') do known[place] = true end
  for place in string.gmatch(recorded, '%d+') do
    if not known[place] and tonumber(place) < tonumber(before) then over[#over + 1] = owner .. '.' .. place end
  end
  if #over == 0 then return false end
  local texts = redis.call('HMGET', K.c, unpack(over))
  redis.call('HDEL', K.c, unpack(over))
  local all, of, back = {}, {}, {}
  for i = 1, #over do
    for key in string.gmatch(texts[i] or '', '[^\n]+') do
      all[#all + 1] = key
      of[#of + 1] = over[i]
    end
  end
  for from = 1, #all, 500 do
    local to = math.min(from + 499, #all)
    local under = redis.call('HMGET', K.l, unpack(all, from, to))
    for i = from, to do
      if under[i - from + 1] == of[i] then back[#back + 1] = all[i] end
    end
  end
  for i = 1, #back do
    redis.call('HDEL', K.l, back[i])
    redis.call('HINCRBY', K.n, back[i], 1)
  end
  for from = 1, #back, 500 do put(list, {unpack(back, from, math.min(from + 499, #back))}, true) end
  return #back > 0
end

-- take takes ready messages from the lists, the most urgent first: so many at most, of about so many bytes at most, at least one.
-- It returns their keys, and a table with key, value, key, value, ... after so many other elements.
local function take(list, want, budget, look, after)
  local ghosts
  local keys, flat, count = {}, {}, 0
  for i = 1, after do flat[i] = '' end
  local place, places = 1, math.max(1, #list)
  while place <= places and want > 0 and budget > 0 do
    local got = redis.call('LPOP', K.r(place), math.min(look, want))
    if not got then
      place = place + 1
    else
      local values = redis.call('HMGET', K.t, unpack(got))
      if ghosts == nil then ghosts = redis.call('EXISTS', K.s) == 1 end
      for i = 1, #got do
        local key, value = got[i], values[i]
        if budget <= 0 then -- too much: back with the rest
          local rest = {}
          for k = #got, i, -1 do rest[#rest + 1] = got[k] end
          redis.call('LPUSH', K.r(place), unpack(rest))
          break
        end
        if not value and string.byte(key, 1) == 123 then -- '{': a JSON task that somebody pushed; it gets an id
          local t = redis.call('TIME')
          value = key
          key = 'j' .. redis.sha1hex(K.m .. ' ' .. t[1] .. ' ' .. t[2] .. ' ' .. redis.call('HINCRBY', K.m, 'foreign', 1))
          redis.call('HSET', K.t, key, value)
        elseif ghosts and passed(place, key) then
          value = false
        end
        if value then
          count = count + 1
          keys[count] = key
          flat[after + 2 * count - 1] = key
          flat[after + 2 * count] = value
          budget = budget - #value
          want = want - 1
        end
      end
      look = math.min(look * 4, 250)
    end
  end
  return keys, flat
end

-- hold notes that an owner holds messages under a claim, and what the owner's record is from now on: see ../doc.go.
local function hold(owner, place, keys, free, mode, open)
  local claim = owner .. '.' .. place
  local holds = {}
  for i = 1, #keys do
    holds[2 * i - 1] = keys[i]
    holds[2 * i] = claim
  end
  if open ~= '' then open = open .. ',' end
  redis.call('HSET', K.l, unpack(holds))
  redis.call('HSET', K.c, claim, table.concat(keys, '\n'),
    owner, place .. ':' .. free .. ':' .. mode .. ':' .. open .. place)
end

-- counts returns "place:count " of each key whose message was handed out before; the first place is 0.
local function counts(keys)
  if redis.call('EXISTS', K.n) == 0 then return '' end
  local again, all = {}, redis.call('HMGET', K.n, unpack(keys))
  for i = 1, #all do
    if all[i] then again[#again + 1] = (i - 1) .. ':' .. all[i] end
  end
  return table.concat(again, ' ')
end

-- nudge tells one waiting owner to claim.
local function nudge(channel)
  for _ = 1, 4 do
    local owner = redis.call('ZPOPMIN', K.h)[1]
    if not owner or redis.call('PUBLISH', channel .. owner, '') > 0 then return end
  end
end

-- offer gives messages to an owner that waits, in a message on its channel, as its next claim. While it has free places, and
-- nothing is left for it to claim, it goes on waiting, behind the others. It returns false if nobody hears that. flat is key, value,
-- key, value, ...; counted says whether some may have been handed out before, empty that no more is ready, only that no other waits.
local function offer(channel, owner, record, keys, flat, counted, empty, only)
  local last, free, mode, open = string.match(record, '^(%d+):(%d+):(%a):(.*)$')
  local place = string.format('%.0f', last + 1)
  free = math.max(0, free - #keys)
  local parts = {place .. ':' .. (empty and free or 0) .. ' ' .. (counted and counts(keys) or '') .. '\n'}
  for i = 1, #flat, 2 do
    parts[#parts + 1] = struct.pack('>I2I4', #flat[i], #flat[i + 1]) .. flat[i]
    parts[#parts + 1] = flat[i + 1]
  end
  if redis.call('PUBLISH', channel .. owner, table.concat(parts)) == 0 then
    redis.call('ZREM', K.h, owner)
    return false
  end
  hold(owner, place, keys, free, mode, open)
  if not empty or free == 0 then
    redis.call('ZREM', K.h, owner)
  elseif not only then
    redis.call('ZADD', K.h, clock(), owner)
  end
  return true
end

-- hand gives what is ready to owners that wait; one that does not hear it is left out. An owner whose mode is n is only told to
-- claim. An owner whose lease has ended is no longer among those that wait when another has claimed since.
local function hand(list, channel)
  local told, left = 0, 0
  for _ = 1, 16 do
    local owner = redis.call('ZRANGE', K.h, 0, 0)[1]
    if not owner then return end
    local free, mode = string.match(redis.call('HGET', K.c, owner) or '', '^%d+:(%d+):(%a):')
    if mode ~= 'c' then
      redis.call('ZREM', K.h, owner)
    end
    if mode == 'n' then
      if told == 0 then
        for place = 1, math.max(1, #list) do left = left + redis.call('LLEN', K.r(place)) end
      end
      redis.call('PUBLISH', channel .. owner, '')
      told, left = told + 1, left - free
      if told > 1 and left <= 0 then return end
    elseif mode == 'c' then
      local keys, flat = take(list, tonumber(free), 65536, 16, 0)
      if #keys == 0 then return end
      local empty = redis.call('EXISTS', K.r()) == 0
      local heard = offer(channel, owner, redis.call('HGET', K.c, owner), keys, flat, true, empty)
      if not heard then
        put(list, keys, true)
      elseif empty then
        return
      end
    end
  end
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
-- value, ...; times, where there are any, belong to the last of them, in the forms that due takes.
local function add(levels, channel, count, pairs_, times)
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
      local at = time and due(time, now) or 0
      if at > now then
        later[#later + 1] = string.format('%.0f', at)
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
  if first then
    local next = redis.call('ZRANGE', K.d, 0, 0, 'WITHSCORES')
    redis.call('ZADD', K.d, unpack(later))
    if not next[2] or first < tonumber(next[2]) then nudge(channel) end -- that it sleeps for less long
  end
  if #ready > 0 then
    local list = bounds(levels)
    put(list, ready, false)
    hand(list, channel)
  end
end

-- trimold drops the dead letters that are older than so many microseconds, from the oldest on; 0: any age is good.
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

-- deadletter adds a dead letter and drops what the bounds leave no room for. From a place in ARGV on stand: the reason, the
-- stack, the attempts, the time in microseconds (0: now), the age that a letter may have in microseconds (0: any), how many
-- letters there may be (0: any number). See ../doc.go for what is stored.
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

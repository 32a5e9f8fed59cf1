-- Functions that several scripts share. loadScript in ../scripts.go puts the functions that a
-- script uses, directly or through others, before the script's own text.
--
-- ../doc.go describes the content of each key. A script's line "-- KEYS:" names its keys in their
-- order. K.t is the key of the table t. K.r(i) is the key of ready list number i, from 1; r, the
-- ready lists, come last.

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

-- bounds returns the level bounds in levels, the text that the table m holds, as a list of numbers.
-- An empty list means one level.
local function bounds(levels)
  local list = {}
  for bound in string.gmatch(levels, '-?%d+') do list[#list + 1] = tonumber(bound) end
  return list
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

-- arrived counts keys that were added to the end of ready list number place, whose length is length
-- now. At most once a second it stores a mark in a: how many keys were added before these, and the
-- time. So stats knows since when the first key of the list waits. Marks of keys that have left the
-- list are removed. Of more than 64 marks every second one is removed.
local function arrived(place, count, length)
  local total = redis.call('HINCRBY', K.a, 'n' .. place, count)
  local now, last = clock(), redis.call('HGET', K.a, 't' .. place)
  if last and now - last < 1000000 then return end
  local marks, first = {}, total - length
  local function mark(before, at)
    if before <= first then marks = {} end
    marks[#marks + 1] = string.format('%.0f:%.0f', before, at)
  end
  for before, at in string.gmatch(redis.call('HGET', K.a, 'm' .. place) or '', '(%d+):(%d+)') do
    mark(tonumber(before), tonumber(at))
  end
  mark(total - count, now)
  if #marks > 64 then
    local thin = {}
    for i = 1, #marks, 2 do thin[#thin + 1] = marks[i] end
    marks = thin
  end
  redis.call('HSET', K.a, 'm' .. place, table.concat(marks, ' '), 't' .. place, string.format('%.0f', now))
end

-- put adds keys to the ready lists of their levels, in their order: at the front if front is true,
-- otherwise at the end.
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
    if front then -- LPUSH puts its last argument first
      local turned = {}
      for i = #to, 1, -1 do turned[#turned + 1] = to[i] end
      redis.call('LPUSH', K.r(place), unpack(turned))
    else
      arrived(place, #to, redis.call('RPUSH', K.r(place), unpack(to)))
    end
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

-- claimed returns the keys of the messages that are still held under a claim.
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

-- reclaim takes the messages of an owner back to the front of the queue, claim by claim, until at
-- least 200 were moved. If counted is true their deliveries count. When no claim is left it removes
-- the owner. Returns the number of moved messages, and true if claims are left.
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

-- settle compares an owner's recorded open claims with open, the claims that the owner itself
-- knows. Claims from number before on are not compared. It forgets the claims that only the record
-- has, because the owner has settled them.
--
-- If messages are still held under such a claim, the server's data went back in time, by a failover
-- or a crash. These messages go back to the front, and their deliveries count. Returns whether
-- there were any.
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

-- take removes ready messages from the lists, the most urgent first: at most want, and about budget
-- bytes but at least one message. look is the number of messages that it reads first. A pushed JSON
-- task gets an id and is stored. Elements of deleted messages are skipped.
--
-- Returns the keys, and a table that has after empty texts, then key, value, key, value, ...
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
        if budget <= 0 then -- the limit is reached: the rest goes back
          local rest = {}
          for k = #got, i, -1 do rest[#rest + 1] = got[k] end
          redis.call('LPUSH', K.r(place), unpack(rest))
          break
        end
        if not value and string.byte(key, 1) == 123 then -- '{': a JSON task that another program pushed
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

-- hold stores that an owner holds the messages of keys under claim number place. It also stores the
-- owner's record: last claim, free places, mode and open claims, see ../doc.go.
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

-- counts returns "index:count" for each key whose message was delivered before, separated by
-- spaces. The first index is 0.
local function counts(keys)
  if redis.call('EXISTS', K.n) == 0 then return '' end
  local again, all = {}, redis.call('HMGET', K.n, unpack(keys))
  for i = 1, #all do
    if all[i] then again[#again + 1] = (i - 1) .. ':' .. all[i] end
  end
  return table.concat(again, ' ')
end

-- nudge notifies a waiting owner, so that it claims. It tries up to 4 owners, until the channel of
-- one has a listener. The owners that it tried are no longer among the waiting ones.
local function nudge(channel)
  for _ = 1, 4 do
    local owner = redis.call('ZPOPMIN', K.h)[1]
    if not owner or redis.call('PUBLISH', channel .. owner, '') > 0 then return end
  end
end

-- offer publishes messages on the channel of a waiting owner, as the owner's next claim. Returns
-- false, and holds nothing, if the channel has no listener: then the owner no longer waits.
--
-- record is the owner's record in c. flat is key, value, key, value, ... counted says that some may
-- have been delivered before. empty says that no further message is ready, only that no other owner
-- waits. While empty is true and the owner has free places, it continues to wait, behind the
-- others.
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

-- hand gives ready messages to up to 16 waiting owners, the longest wait first. An owner of mode c
-- gets the messages on its channel, see offer. An owner of mode n is only notified. An owner whose
-- channel has no listener is skipped, and its messages go back to the front.
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

-- waiting returns the key of the waiting message with an id, its value, and its time, or false if
-- it is ready. id is the key of generation 0. Of several generations it returns the last published
-- one that no owner holds, and nothing if there is none.
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

-- add stores the messages that the queue does not have yet. It makes them ready, or delays those
-- whose time has not come. Then it gives ready messages to waiting owners.
--
-- pairs_ is key, value, key, value, ... for count messages. times holds the times of the last
-- messages, in the forms of due.
local function add(levels, channel, count, pairs_, times)
  local keys = {}
  for i = 1, count do keys[i] = pairs_[2 * i - 1] end
  local have = redis.call('HMGET', K.t, unpack(keys))
  local now = #times > 0 and clock() or 0
  local stored, ready, later, first = {}, {}, {}, nil
  for i = 1, count do
    local key = keys[i]
    if not have[i] and not have[key] then
      have[key] = true -- a second message of this key in the batch is skipped
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
    if not next[2] or first < tonumber(next[2]) then nudge(channel) end -- a waiting owner must wake earlier
  end
  if #ready > 0 then
    local list = bounds(levels)
    put(list, ready, false)
    hand(list, channel)
  end
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

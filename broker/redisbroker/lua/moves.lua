-- Functions that hold, return and deliver messages, of plain and of fair queues.

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

-- reclaim takes the messages of an owner back to the front of the queue, claim by claim, the last one
-- first, so that they are in the order of the claims. It stops when at least 200 were moved. If counted is true their deliveries count. When no claim is left it removes
-- the owner. Returns the number of moved messages, and true if claims are left.
local function reclaim(list, owner, counted)
  local head, open = string.match(redis.call('HGET', K.c, owner) or '', '^(%d+:%d+:%a:)(.*)$')
  local moved, left = 0, {}
  for place in string.gmatch(open or '', '%d+') do left[#left + 1] = place end
  while #left > 0 and moved < 200 do
    local claim = owner .. '.' .. table.remove(left)
    local keys = claimed(claim)
    if #keys > 0 then
      redis.call('HDEL', K.l, unpack(keys))
      places(string.sub(K.m, 1, -2), K.t, keys) -- of fair queues
      if counted then
        for j = 1, #keys do redis.call('HINCRBY', K.n, keys[j], 1) end
      end
      put(list, keys, counted and 'lost' or true)
      moved = moved + #keys
    end
    redis.call('HDEL', K.c, claim)
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
  for from = 1, #back, 500 do
    local part = {unpack(back, from, math.min(from + 499, #back))}
    places(string.sub(K.m, 1, -2), K.t, part) -- of fair queues
    put(list, part, true)
  end
  return #back > 0
end

-- hold stores that an owner holds the messages of keys under claim number place. It also stores the
-- owner's record: last claim, free places, mode and open claims, see ../doc.go. flat holds key, value,
-- key, value, ... from index after + 1 on, or is nil if charge has counted the messages.
local function hold(owner, place, keys, free, mode, open, flat, after)
  if flat then heldnow(flat, after) end -- of fair queues
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
  hold(owner, place, keys, free, mode, open, flat, 0)
  if not empty or free == 0 then
    redis.call('ZREM', K.h, owner)
  elseif not only then
    redis.call('ZADD', K.h, clock(), owner)
  end
  return true
end

-- hand gives ready messages to up to 16 waiting owners, the longest wait first. An owner of mode c
-- gets the messages on its channel, see offer. An owner of mode n is only notified. An owner whose
-- channel has no listener is skipped, and its messages go back to the front. most is the number of
-- messages that became ready, or nil: then the whole backlog counts. In fair queues that includes
-- messages of keys at a limit.
local function hand(list, channel, most)
  if list.fair and redis.call('EXISTS', K.r()) == 0 then return end -- all fairness keys are at a limit
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
        if list.fair then left = left + redis.call('HLEN', K.t) - redis.call('HLEN', K.l) end -- also delayed ones
        if most then left = math.min(left, most) end
      end
      redis.call('PUBLISH', channel .. owner, '')
      told, left = told + 1, left - free
      if told > 1 and left <= 0 then return end
    elseif mode == 'c' then
      local keys, flat = take(list, tonumber(free), 65536, 16, 0, 0, 0)
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
  local stored, ready, values, later, first = {}, {}, {}, {}, nil
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
        values[#ready] = pairs_[2 * i]
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
    if not next[2] or first < tonumber(next[2]) then nudge(K.h, channel) end -- a waiting owner must wake earlier
  end
  if #ready > 0 then
    local list = bounds(levels)
    put(list, ready, false, values)
    hand(list, channel, #ready)
  end
end

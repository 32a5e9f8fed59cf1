-- Bounds of fair queues: how many messages may be held, and how many may be claimed in a time. A
-- claim brings its bounds; the server stores only what was used. base is the common beginning of the
-- queue's keys, which are:
--
--   - b: a hash, fairness key -> number of its held messages. It has a field that is too long for a
--     key: Redis stores the hash as a hash table then. In the compact form a search is slow.
--   - u: a sorted set of fairness keys; the score is the time up to which the rate of a key is used
--   - p: a sorted set of the parked fairness keys, those at a limit. The score is the time at which a
--     rate allows the next message, or parkedfull if the key waits for a place.
--   - q: a hash, parked fairness key -> 'level:tag:clock', with spaces between. The key is not in the
--     turns of these levels. It had the tag when the lowest tag was clock.
--
-- The hash m has these fields:
--
--   - counted: the number of messages that b counts. It exists from the first claim with bounds until
--     a minute after the last one.
--   - bounded: the time of the last claim with bounds, to 10 s
--   - recounted: the time when b was made
--   - of: a digest of the bounds for which keys are parked
--   - mixed: the time of the last claim whose bounds differed from those of the one before
--   - full: exists if messages may wait for a place while no key is parked: the queue had no free place
--     at the last claim with bounds, or a claim took the last place of a key and then stopped
--   - used: the time up to which the rate of the queue is used
--
-- All times are in microseconds since 1970.

-- parkedfull is the score in p of a key that waits for a place. It is greater than all times.
local function parkedfull() return 9007199254740992 end

-- fairness returns the fairness key and the weight in the stored message value. Both are the first
-- headers of the message, see ../../../internal/messagecode.
local function fairness(value)
  if not value or #value < 30 or string.byte(value, 1) ~= 1 then return '', 1 end
  local types, e1, e2, e3, e4 = string.byte(value, 14, 18) -- lengths of the content type and of the headers
  if e1 + e2 + e3 + e4 == 0 then return '', 1 end
  local at = 20 + types
  if string.byte(value, at - 1) == 222 then at = at + 2 end -- a msgpack map of more than 15 headers
  local of, weight = '', 1
  -- numbers, because each new text costs about 0.5 us
  local c1, c2, c3, c4, c5, c6, c7, c8, size, first = string.byte(value, at, at + 9)
  if c1 == 167 and c2 == 115 and c3 == 119 and c4 == 106 and c5 == 45 and c6 == 107 and c7 == 101 and c8 == 121 and first then -- swj-key
    at = at + 9
    if size == 217 then -- a text of more than 31 bytes
      size = 160 + first
      at = at + 1
    end
    of = string.sub(value, at, at + size - 161)
    at = at + size - 160
  end
  if string.byte(value, at) == 170 and string.sub(value, at, at + 10) == '\170swj-weight' then
    weight = string.byte(value, at + 11) or 1
    if weight < 1 or weight > 100 then weight = 1 end
  end
  return of, weight
end

-- unpark returns parked fairness keys to the turns, with their tags, but not before the lowest tag.
-- Names that are not parked are skipped. If full is true only keys that wait for a place return.
-- Returns the number of returned keys.
local function unpark(base, names, full)
  if #names > 8 and redis.call('EXISTS', base .. 'q') == 0 then return 0 end -- the usual case
  local saved, back, levels = redis.call('HMGET', base .. 'q', unpack(names)), {}, {}
  for i = 1, #names do
    if saved[i] and not (full and tonumber(redis.call('ZSCORE', base .. 'p', names[i]) or 0) < parkedfull()) then
      back[#back + 1] = names[i]
      for place, tag, clock in string.gmatch(saved[i], '(%d+):(%-?%d+):(%-?%d+)') do
        levels[place] = levels[place] or {}
        table.insert(levels[place], {names[i], tonumber(tag), tonumber(clock)})
      end
    end
  end
  if #back == 0 then return 0 end
  redis.call('HDEL', base .. 'q', unpack(back))
  redis.call('ZREM', base .. 'p', unpack(back))
  for place, all in pairs(levels) do
    local zset, tags = base .. 'k' .. place - 1, {}
    local lowest = tonumber(redis.call('ZRANGE', zset, 0, 0, 'WITHSCORES')[2])
    for i = 1, #all do
      local name, tag, clock = unpack(all[i])
      if lowest and lowest < clock then tag = lowest + tag - clock end -- the tags began again
      tags[2 * i - 1] = string.format('%.0f', math.max(tag, lowest or tag))
      tags[2 * i] = name
    end
    redis.call('ZADD', zset, unpack(tags))
  end
  return #back
end

-- park takes fairness keys of level number place out of the turns. tags holds their tags, scores
-- their scores in p, and clock is the lowest tag.
local function park(base, place, names, tags, scores, clock)
  local saved, set, due = redis.call('HMGET', base .. 'q', unpack(names)), {}, {}
  for i = 1, #names do
    set[2 * i - 1], due[2 * i] = names[i], names[i]
    set[2 * i] = (saved[i] and saved[i] .. ' ' or '') .. string.format('%d:%.0f:%.0f', place, tags[i], clock)
    due[2 * i - 1] = string.format('%.0f', scores[i])
  end
  redis.call('ZREM', base .. 'k' .. place - 1, unpack(names))
  redis.call('HSET', base .. 'q', unpack(set))
  redis.call('ZADD', base .. 'p', unpack(due))
end

-- tally counts messages in b: by 1 for held ones, -1 for those that are no longer held. values are
-- their stored forms. Returns their fairness keys.
local function tally(base, values, by)
  local names, counts = {}, {}
  for i = 1, #values do
    local of = fairness(values[i])
    if not counts[of] then names[#names + 1] = of end
    counts[of] = (counts[of] or 0) + by
  end
  local has, set, gone = redis.call('HMGET', base .. 'b', unpack(names)), {}, {}
  for i = 1, #names do
    local count = (has[i] or 0) + counts[names[i]]
    if count > 0 then
      set[#set + 1] = names[i]
      set[#set + 1] = count
    else
      gone[#gone + 1] = names[i]
    end
  end
  if #set > 0 then redis.call('HSET', base .. 'b', unpack(set)) end
  if #gone > 0 then redis.call('HDEL', base .. 'b', unpack(gone)) end
  redis.call('HINCRBY', base .. 'm', 'counted', by * #values)
  return names
end

-- places counts messages that are no longer held, if the queue counts them. Call it before their
-- values are removed. t is the key of the values. It returns their fairness keys to the turns. It
-- notifies waiting owners, one for each place that became free, so that they claim. If the owners have
-- different bounds it notifies all, up to 16: only some of them may use the place.
local function places(base, t, keys)
  local counted, full, mixed = unpack(redis.call('HMGET', base .. 'm', 'counted', 'full', 'mixed'))
  if not counted then return end
  local free = unpark(base, tally(base, redis.call('HMGET', t, unpack(keys)), -1), true)
  if full or free > 0 then free = #keys end -- several places of one key may be free
  if mixed and clock() - mixed < 60000000 then free = 16 end
  for _ = 1, math.min(free, 16) do
    if not nudge(base .. 'h', base .. 'w') then return end
  end
end

-- recount makes b from the held messages.
local function recount(base, now)
  local fields, counts, total = redis.call('HKEYS', base .. 'l'), {}, 0
  for from = 1, #fields, 500 do
    local values = redis.call('HMGET', base .. 't', unpack(fields, from, math.min(from + 499, #fields)))
    for i = 1, #values do
      if fields[from + i - 1] ~= '' then
        local of = fairness(values[i])
        counts[of] = (counts[of] or 0) + 1
        total = total + 1
      end
    end
  end
  redis.call('DEL', base .. 'b')
  redis.call('HSET', base .. 'b', string.rep('-', 300), 0)
  for of, count in pairs(counts) do redis.call('HSET', base .. 'b', of, count) end
  redis.call('HSET', base .. 'm', 'counted', total, 'recounted', string.format('%.0f', now))
end

-- unparksome returns up to most fairness keys to the turns. Returns their number.
local function unparksome(base, most)
  local names = redis.call('ZRANGE', base .. 'p', 0, most - 1)
  return #names > 0 and unpark(base, names) or 0
end

-- limits prepares list for a claim of want messages at the time now. packed holds the bounds as
-- ../bounds.go packs them, '' if there are none. first says that it is the owner's first claim.
-- counted is that field of m. Returns how many messages the claim may take.
--
-- It makes b if the claim is the first one with bounds. It does so too if the number of held messages
-- is another than counted: a process of an older version does not count. Keys that were parked for
-- other bounds, and those whose time has come, return to the turns.
local function limits(list, packed, want, now, counted, first)
  local base = list.fair
  if packed == '' and not counted then return want end
  local meta = redis.call('HMGET', base .. 'm', 'recounted', 'bounded', 'of', 'used', 'full')
  local digest, key, all, keys, bound, rates = '', nil, nil, nil, nil, nil
  if packed ~= '' then
    digest = string.sub(packed, 1, 16)
    key, all, keys, bound, rates = unpack(cjson.decode(string.sub(packed, 17)))
  end
  if meta[3] ~= digest then
    if meta[3] then redis.call('HSET', base .. 'm', 'mixed', string.format('%.0f', now)) end
    if unparksome(base, 1000) == 0 or redis.call('EXISTS', base .. 'p') == 0 then
      redis.call('HSET', base .. 'm', 'of', digest)
      redis.call('HDEL', base .. 'm', 'full')
      meta[5] = false
    end
  end
  if packed == '' then
    if now - (meta[2] or 0) > 60000000 and redis.call('EXISTS', base .. 'p') == 0 then
      redis.call('DEL', base .. 'b')
      redis.call('HDEL', base .. 'm', 'counted', 'recounted', 'bounded', 'of', 'mixed', 'full')
    end
    return want
  end
  if now - (meta[2] or 0) > 10000000 then redis.call('HSET', base .. 'm', 'bounded', string.format('%.0f', now)) end
  local held = math.max(0, redis.call('HLEN', base .. 'l') - 1)
  local age = now - (meta[1] or 0)
  local wrong = counted and tonumber(counted) ~= held
  if not counted or wrong and age > 1000000 or first and age > 10000000 then
    recount(base, now)
    unparksome(base, 1000)
    wrong = false
  end
  local due = redis.call('ZRANGEBYSCORE', base .. 'p', '-inf', now, 'LIMIT', 0, 500)
  if #due > 0 then unpark(base, due) end
  list.limits = {key = key, keys = keys, all = all, bound = bound, rates = rates, now = now, held = held, again = wrong and meta[1] + 1000001 or nil, before = {}, taken = {}, rooms = {}, used = {}, full = meta[5], at = math.max(now, meta[4] or 0)}
  local room = want
  if all[1] > 0 then room = math.min(room, all[1] - held) end
  if all[2] > 0 then
    room = math.min(room, math.floor((now + all[3] - list.limits.at) / all[2]))
  end
  return math.max(0, room)
end

-- admit returns top without the fairness keys of level number place that are at a limit. top is key,
-- tag, key, tag, ... It parks those of them that have messages. Returns true too if it parked some.
-- It stores in list.limits how many messages of the others the claim may still take.
local function admit(list, place, top)
  local l, base, names = list.limits, list.fair, {}
  for i = 1, #top / 2 do names[i] = top[2 * i - 1] end
  local held, used = redis.call('HMGET', base .. 'b', unpack(names)), l.rates and redis.call('ZMSCORE', base .. 'u', unpack(names)) or {}
  local kept, full, tags, scores, single = {}, {}, {}, {}, next(l.keys) ~= nil
  local max, interval, burst = unpack(l.key)
  for i = 1, #names do
    local name = names[i]
    if single then max, interval, burst = unpack(l.keys[name] or l.key) end
    local room, due = math.huge, parkedfull()
    local count = held[i] or 0
    l.before[name] = count
    if max > 0 then room = max - count - (l.taken[name] or 0) end
    if interval > 0 and room > 0 then
      local at = math.max(l.now, l.used[name] or used[i] or 0)
      l.used[name] = at
      local count = math.floor((l.now + burst - at) / interval)
      if count < 1 then due = at + interval - burst end
      room = math.min(room, count)
    end
    l.rooms[name] = room > 0 and room or nil
    if room <= 0 then
      full[#full + 1] = name
      tags[#full], scores[#full] = top[2 * i], due
    end
  end
  if #full == 0 then return top, false end
  for i = 1, #names do
    if l.rooms[names[i]] then
      kept[#kept + 1] = names[i]
      kept[#kept + 1] = top[2 * i]
    end
  end
  local lines, parked, ofparked, due = redis.call('HMGET', base .. 'f' .. place - 1, unpack(full)), {}, {}, {}
  for i = 1, #full do
    if lines[i] then
      parked[#parked + 1] = full[i]
      ofparked[#parked], due[#parked] = tags[i], scores[i]
    end
  end
  if #parked > 0 then park(base, place, parked, ofparked, due, top[2]) end
  return kept, #parked > 0
end

-- taken records in list.limits that the claim takes count messages of a fairness key.
local function taken(l, name, count)
  l.taken[name] = (l.taken[name] or 0) + count
  local interval = l.rates and (l.keys[name] or l.key)[2] or 0
  if interval > 0 then
    l.used[name] = l.used[name] + count * interval
    l.rated = true
  end
end

-- charge stores the places and the rates that a claim of count messages uses, and the field full.
-- all says that the claim took all messages that it found. Returns the time when a rate allows the
-- next message of a parked key or of the queue, or when to count again what is held, nil if nothing
-- waits for a time.
local function charge(list, count, all)
  local l, base, full = list.limits, list.fair, false
  if l.bound and count > 0 then
    local set = {}
    for name, taking in pairs(l.taken) do
      set[#set + 1] = name
      set[#set + 1] = l.before[name] + taking
      local most = (l.keys[name] or l.key)[1]
      full = full or not all and most > 0 and l.before[name] + taking >= most
    end
    redis.call('HSET', base .. 'b', unpack(set))
    redis.call('HINCRBY', base .. 'm', 'counted', count)
  end
  if l.rated then
    local set, last = {}, 0
    for name in pairs(l.taken) do
      local at = l.used[name]
      if at then
        set[#set + 1] = string.format('%.0f', at)
        set[#set + 1] = name
        last = math.max(last, at)
      end
    end
    redis.call('ZREMRANGEBYSCORE', base .. 'u', '-inf', l.now)
    redis.call('ZADD', base .. 'u', unpack(set))
    last = math.ceil(last / 1000)
    if redis.call('PEXPIRETIME', base .. 'u') < last then redis.call('PEXPIREAT', base .. 'u', last) end
  end
  local next = l.again
  local parked = redis.call('ZRANGE', base .. 'p', 0, 0, 'WITHSCORES')[2]
  if parked and tonumber(parked) < parkedfull() then next = math.min(next or parked, parked) end
  local max, interval, burst = unpack(l.all)
  if interval > 0 then
    local at = l.at + count * interval
    if count > 0 then redis.call('HSET', base .. 'm', 'used', string.format('%.0f', at)) end
    local free = at + interval - burst
    if free > l.now then next = math.min(next or free, free) end
  end
  if full or max > 0 and l.held + count >= max then
    if not l.full then redis.call('HSET', base .. 'm', 'full', 1) end
  elseif all and l.full then
    redis.call('HDEL', base .. 'm', 'full')
  end
  return next
end

-- The ready messages of fair queues, which deliver in turns over fairness keys. plain.lua has the
-- same functions for other queues.
--
-- list, from bounds, has the field fair: the common beginning of the queue's keys. Level number
-- place, from 1, has these keys, with place - 1 in their names:
--
--   - k0: a sorted set of the fairness keys; the score is the key's tag
--   - f0: a hash with the next ready messages of each fairness key, its line. That is '-' and the
--     elements, with line ends between. An element is the message's key. Before it may stand a stamp:
--     a tab and the time in seconds since 1970 as 8 hexadecimal digits. An element without a stamp has
--     that of the element before it. The first element of a line has a stamp.
--   - f0:<fairness key>: a list with the elements behind the line. It exists if the line begins with
--     '+'. So only the keys with many messages have a list.
--
-- The tag of a key is the sum of its turns. The key with the lowest tag has the next turn, and a
-- message of weight w adds 1,000,000/w to the tag, rounded: Redis is fast with whole numbers. A new
-- key begins just behind the lowest tag. Returned messages lower tags: then it begins behind the
-- lowest tag before that, the field floor1 of m for level 1. Otherwise a stream of new keys could
-- pass an older key for a long time. A key without messages stays in k0 until its tag is the lowest:
-- otherwise a key with one message at a time would always be first.

-- bounds returns the level bounds in levels, which begins with "fair", as a list of numbers. An empty
-- list means one level.
local function bounds(levels)
  local list = {fair = string.sub(K.m, 1, -2)}
  for bound in string.gmatch(levels, '-?%d+') do list[#list + 1] = tonumber(bound) end
  return list
end

-- waitsince counts count messages that became ready at second, in the hash v: second -> number of
-- ready messages. So stats knows since when the oldest one waits. Of more than 64 seconds every
-- other one is merged into the one before it.
local function waitsince(list, second, count)
  local v = list.fair .. 'v'
  if redis.call('HINCRBY', v, second, count) > count or redis.call('HLEN', v) <= 64 then return end
  local all, counted = {}, {}
  local got = redis.call('HGETALL', v)
  for i = 1, #got, 2 do
    all[#all + 1] = tonumber(got[i])
    counted[all[#all]] = got[i + 1]
  end
  table.sort(all)
  for i = 2, #all - 1, 2 do -- the last one grows
    redis.call('HINCRBY', v, all[i - 1], counted[all[i]])
    redis.call('HDEL', v, all[i])
  end
end

-- departed counts messages that are no longer ready, in the hash v. stamps is stamp -> number.
local function departed(list, stamps)
  local v, all = list.fair .. 'v', nil
  for stamp, count in pairs(stamps) do
    local second = tonumber(stamp, 16)
    if not redis.call('HGET', v, second) then -- the second was merged into an earlier one
      all = all or redis.call('HKEYS', v)
      local best = 0
      for i = 1, #all do
        local at = tonumber(all[i])
        if at <= second and at > best then best = at end
      end
      second = best
    end
    if redis.call('HINCRBY', v, second, -count) <= 0 then redis.call('HDEL', v, second) end
  end
end

-- weigh stores the weights of fairness keys of a level, key -> weight, in the hash w0. It has the keys
-- of which a message has a weight other than 1. The hash helps to plan a claim: a turn costs what its
-- message weighs. A key is removed when its tag is.
local function weigh(list, place, weights)
  local set = {}
  for of, weight in pairs(weights) do
    set[#set + 1] = of
    set[#set + 1] = weight
  end
  if #set > 0 then redis.call('HSET', list.fair .. 'w' .. place - 1, unpack(set)) end
end

-- prepend adds elements, of which the first has a stamp, to the front of the line of a fairness key.
-- Returns the new line. It has at most 8 elements; the others go to the front of the list.
local function prepend(lists, of, line, elements)
  local all = {unpack(elements)}
  for element in string.gmatch(line and string.sub(line, 2) or '', '[^\n]+') do all[#all + 1] = element end
  local mark, behind = line and string.sub(line, 1, 1) or '-', {}
  for i = #all, 9, -1 do -- LPUSH puts its last argument first
    behind[#behind + 1] = all[i]
    all[i] = nil
  end
  if #behind > 0 then
    redis.call('LPUSH', lists .. of, unpack(behind))
    mark = '+'
  end
  return mark .. table.concat(all, '\n')
end

-- heldnow counts messages that an owner receives. flat holds key, value, key, value, ... from index
-- after + 1 on.
local function heldnow(flat, after)
  if redis.call('HEXISTS', K.m, 'counted') == 0 then return end
  local values = {}
  for i = after + 2, #flat, 2 do values[#values + 1] = flat[i] end
  tally(string.sub(K.m, 1, -2), values, 1)
end

-- put adds keys to the ready messages of their levels and fairness keys, in their order. If front is
-- true they stand first in their fairness keys, and their turns are given back. If front is 'lost'
-- they stand first too, and take a turn again. values holds the stored messages, or is nil: then put
-- reads them.
local function put(list, keys, front, values)
  values = values or redis.call('HMGET', K.t, unpack(keys))
  local second = math.floor(redis.call('TIME')[1])
  local stamp, levels, one = string.format('\t%08x', second), {}, #list < 2
  for i = 1, #keys do
    local place, of, weight = one and 1 or level(list, values[i]), fairness(values[i])
    local at = levels[place]
    if not at then
      at = {names = {}, elements = {}, cost = {}, weights = {}}
      levels[place] = at
    end
    local elements = at.elements[of]
    if not elements then
      at.elements[of] = keys[i]
      at.names[#at.names + 1] = of
    elseif type(elements) == 'table' then
      elements[#elements + 1] = keys[i]
    else
      at.elements[of] = {stamp .. elements, keys[i]}
    end
    if front == true then at.cost[of] = (at.cost[of] or 0) + math.floor(1000000 / weight) end
    if weight ~= 1 then at.weights[of] = weight end
  end
  waitsince(list, second, #keys)
  for place, at in pairs(levels) do
    local zset, hash, names = list.fair .. 'k' .. place - 1, list.fair .. 'f' .. place - 1, at.names
    local floor = 'floor' .. place
    local lines, set, new = redis.call('HMGET', hash, unpack(names)), {}, {}
    for i = 1, #names do
      local of, line = names[i], lines[i]
      local elements = at.elements[of]
      local single = type(elements) ~= 'table'
      if front then
        line = prepend(hash .. ':', of, line, single and {stamp .. elements} or elements)
      elseif not line then
        new[#new + 1] = of
        if single then
          line = '-' .. stamp .. elements
        elseif #elements <= 8 then
          line = '-' .. table.concat(elements, '\n')
        else
          redis.call('RPUSH', hash .. ':' .. of, unpack(elements, 9))
          line = '+' .. table.concat(elements, '\n', 1, 8)
        end
      elseif string.byte(line, 1) == 45 and #line < 250 and (single or #elements <= 8) then -- '-'
        line = line .. '\n' .. (single and stamp .. elements or table.concat(elements, '\n'))
      else
        redis.call('RPUSH', hash .. ':' .. of, unpack(single and {stamp .. elements} or elements))
        line = string.byte(line, 1) == 45 and '+' .. string.sub(line, 2)
      end
      if line then
        set[#set + 1] = of
        set[#set + 1] = line
      end
    end
    if #set > 0 then redis.call('HSET', hash, unpack(set)) end
    if front then
      local lowest, tags = tonumber(redis.call('ZRANGE', zset, 0, 0, 'WITHSCORES')[2]), {}
      if not lowest then
        redis.call('HDEL', K.m, floor)
      elseif lowest > tonumber(redis.call('HGET', K.m, floor) or -math.huge) then
        redis.call('HSET', K.m, floor, string.format('%.0f', lowest))
      end
      local has = redis.call('ZMSCORE', zset, unpack(names))
      for i = 1, #names do
        tags[2 * i - 1] = string.format('%.0f', (has[i] or lowest or 0) - (lowest and at.cost[names[i]] or 0))
        tags[2 * i] = names[i]
      end
      redis.call('ZADD', zset, unpack(tags))
    elseif #new > 0 then
      local lowest, tags = tonumber(redis.call('ZRANGE', zset, 0, 0, 'WITHSCORES')[2]), {}
      if lowest then
        lowest = math.max(lowest, redis.call('HGET', K.m, floor) or lowest)
      else
        redis.call('HDEL', K.m, floor)
      end
      local tag = lowest and string.format('%.0f', lowest + 1000) or '0' -- behind those that wait with the lowest tag
      for i = 1, #new do
        tags[2 * i - 1] = tag
        tags[2 * i] = new[i]
      end
      redis.call('ZADD', zset, 'NX', unpack(tags))
    end
    weigh(list, place, at.weights)
  end
end

-- absorb moves the elements of the lists r into the turns. Other programs and older versions of the
-- library add messages there.
local function absorb(list)
  if redis.call('EXISTS', K.r()) == 0 then return end
  for place = 1, math.max(1, #list) do
    local got = redis.call('LPOP', K.r(place), 500) or {}
    local keys, values = {}, {}
    local stored = #got > 0 and redis.call('HMGET', K.t, unpack(got))
    for i = 1, #got do
      local key, value = got[i], stored[i]
      if not value and string.byte(key, 1) == 123 then -- '{': a JSON task that another program pushed
        local t = redis.call('TIME')
        value = key
        key = 'j' .. redis.sha1hex(K.m .. ' ' .. t[1] .. ' ' .. t[2] .. ' ' .. redis.call('HINCRBY', K.m, 'foreign', 1))
        redis.call('HSET', K.t, key, value)
      elseif passed(place, key) then
        value = false
      end
      if value then
        keys[#keys + 1] = key
        values[#values + 1] = value
      end
    end
    if #keys > 0 then put(list, keys, false, values) end
  end
end

-- shares returns how many of the next turns each fairness key has. top is key, tag, key, tag, ...,
-- the lowest tag first. weights is key -> weight of the keys whose weight is not 1, or nil.
local function shares(top, turns, weights)
  local count, plan = #top / 2, {}
  if count == turns and not weights and top[2 * count] - top[2] <= 1000000 then
    for i = 1, count do plan[i] = 1 end
    return plan
  end
  -- The tags are the bottom of a vessel into which the turns are poured: sum / total is the level.
  local tag, weight, total, sum, covered = {}, {}, 0, turns, 0
  for i = 1, count do
    tag[i] = top[2 * i] / 1000000
    weight[i] = weights and weights[top[2 * i - 1]] or 1
    plan[i] = 0
    if covered == i - 1 and (i == 1 or tag[i] < sum / total) then
      covered = i
      total = total + weight[i]
      sum = sum + tag[i] * weight[i]
    end
  end
  for i = 1, covered do
    plan[i] = math.max(0, math.min(turns, math.floor((sum / total - tag[i]) * weight[i])))
    turns = turns - plan[i]
  end
  -- the rest, less than one turn a key, in the order of the next tags
  local order = {}
  for i = 1, count do
    order[i] = i
    tag[i] = tag[i] + plan[i] / weight[i]
  end
  table.sort(order, function(a, b)
    if tag[a] == tag[b] then return a < b end
    return tag[a] < tag[b]
  end)
  for i = 1, math.min(turns, count) do plan[order[i]] = plan[order[i]] + 1 end
  return plan
end

-- retire removes fairness keys that have no messages from the lowest tag of a level on, about 1,000
-- at most.
local function retire(list, place)
  local zset, hash = list.fair .. 'k' .. place - 1, list.fair .. 'f' .. place - 1
  for step = 0, 4 do -- first only one
    local names = redis.call('ZRANGE', zset, 0, 250 * math.min(step, 1))
    local lines, gone = #names > 0 and redis.call('HMGET', hash, unpack(names)), {}
    for i = 1, #names do
      if lines[i] then break end
      gone[i] = names[i]
    end
    if #gone > 0 then
      redis.call('ZREM', zset, unpack(gone))
      redis.call('HDEL', list.fair .. 'w' .. place - 1, unpack(gone))
    end
    if #gone < #names or #names == 0 then return end
  end
end

-- cut removes elements from the front of a fairness key, up to want, and appends the keys of their
-- messages to keys and the stamps to stamps. Returns the new line, nil if no message is left.
local function cut(lists, of, line, want, keys, stamps)
  local at, count, n, stamp = 2, 0, #keys, nil
  while count < want do
    local stop = string.find(line, '\n', at, true)
    if string.byte(line, at) == 9 then
      stamp = string.sub(line, at + 1, at + 8)
      at = at + 9
    end
    count = count + 1
    stamps[n + count], keys[n + count] = stamp, string.sub(line, at, stop and stop - 1 or -1)
    if not stop then
      if string.byte(line, 1) == 45 then return nil end -- '-': no list
      local got = redis.call('LPOP', lists .. of, want - count + 8) or {}
      local mark = #got < want - count + 8 and '-' or '+'
      local taken = math.min(#got, want - count)
      n = n + count
      for i = 1, taken do
        local key = got[i]
        if string.byte(key, 1) == 9 then stamp, key = string.sub(key, 2, 9), string.sub(key, 10) end
        stamps[n + i], keys[n + i] = stamp, key
      end
      if #got == taken then return nil end
      if string.byte(got[taken + 1], 1) ~= 9 then mark = mark .. '\t' .. stamp end
      return mark .. table.concat(got, '\n', taken + 1)
    end
    at = stop + 1
  end
  local mark = string.sub(line, 1, 1)
  if string.byte(line, at) ~= 9 then mark = mark .. '\t' .. stamp end
  return mark .. string.sub(line, at)
end

-- pop removes the messages of the next turns of a level, up to want. It charges no turn. Returns
-- their keys, their stamps, their fairness keys, the tags of these (key -> tag), their weights as far
-- as they are in w0, and the number of fairness keys that it looked at. Those without messages are
-- removed. With list.limits it takes only what these allow.
local function pop(list, place, want)
  local zset, hash, w = list.fair .. 'k' .. place - 1, list.fair .. 'f' .. place - 1, list.fair .. 'w' .. place - 1
  local keys, stamps, of, tags = {}, {}, {}, {}
  local top, looked = redis.call('ZRANGE', zset, 0, want - 1, 'WITHSCORES'), 0
  if list.limits and list.limits.bound then
    local again = #top > 0
    while again do
      looked = looked + #top / 2
      top, again = admit(list, place, top)
      again = again and looked < 2000
      if again then
        top = redis.call('ZRANGE', zset, 0, want - 1, 'WITHSCORES')
        again = #top > 0
      end
    end
    if looked > 0 and #top == 0 then retire(list, place) end
  end
  if #top == 0 then return keys, stamps, of, tags, nil, looked end
  local weights
  if redis.call('EXISTS', w) == 1 then
    local names = {}
    weights = {}
    for i = 1, #top, 2 do names[#names + 1] = top[i] end
    local got = redis.call('HMGET', w, unpack(names))
    for i = 1, #names do weights[names[i]] = tonumber(got[i] or nil) end
  end
  local plan, names, turns = shares(top, want, weights), {}, {}
  looked = math.max(looked, #plan)
  for i = 1, #plan do
    if plan[i] > 0 then
      if list.limits then plan[i] = math.min(plan[i], list.limits.rooms[top[2 * i - 1]] or plan[i]) end
      names[#names + 1] = top[2 * i - 1]
      turns[#turns + 1] = plan[i]
      tags[names[#names]] = top[2 * i]
    end
  end
  local lines, set, gone, empty = redis.call('HMGET', hash, unpack(names)), {}, {}, {}
  for i = 1, #names do
    local name, line = names[i], lines[i]
    if line then
      line = cut(hash .. ':', name, line, turns[i], keys, stamps)
      for k = #of + 1, #keys do of[k] = name end
      if line then
        set[#set + 1] = name
        set[#set + 1] = line
      else
        empty[#empty + 1] = name
      end
    else
      gone[#gone + 1] = name
      tags[name] = nil
    end
  end
  if #set > 0 then redis.call('HSET', hash, unpack(set)) end
  if #empty > 0 then redis.call('HDEL', hash, unpack(empty)) end
  if #gone > 0 then
    redis.call('ZREM', zset, unpack(gone))
    if weights then redis.call('HDEL', w, unpack(gone)) end
  end
  return keys, stamps, of, tags, weights, looked
end

-- giveback puts the messages from index from on back to the front of their fairness keys.
local function giveback(list, place, keys, stamps, of, from)
  local hash, groups = list.fair .. 'f' .. place - 1, {}
  for i = from, #keys do
    local elements = groups[of[i]] or {}
    groups[of[i]] = elements
    elements[#elements + 1] = '\t' .. stamps[i] .. keys[i]
  end
  for name, elements in pairs(groups) do
    redis.call('HSET', hash, name, prepend(hash .. ':', name, redis.call('HGET', hash, name), elements))
  end
end

-- take removes the messages of the next turns, the most urgent level first: at most want, and about
-- budget bytes but at least one message. look is the number of messages that it reads first. lower and
-- turn are those of passes.
--
-- Returns the keys, and a table that has after empty texts, then key, value, key, value, ... Returns
-- true too if more may be ready: it stopped at the limit of bytes, or because many fairness keys had
-- no messages, or a list r has more than absorb moves at once.
local function take(list, want, budget, look, after, lower, turn)
  local keys, flat, count, looked = {}, {}, 0, 0
  for i = 1, after do flat[i] = '' end
  absorb(list)
  local old, ghosts = {}, redis.call('EXISTS', K.s) == 1
  local order, most = passes(list, lower, turn)
  local step = 1
  while order[step] and want > 0 and budget > 0 and looked < 2000 do
    local place = order[step]
    local names, stamps, of, tags, weights, seen = pop(list, place, math.min(look, want, most[step]))
    looked = looked + seen
    look = math.min(look * 4, 250)
    most[step] = most[step] - #names
    if seen == 0 or most[step] <= 0 then step = step + 1 end
    if #names > 0 then
      local values, cost, weighed, counts = redis.call('HMGET', K.t, unpack(names)), {}, {}, {}
      for i = 1, #names do
        local key, value, name = names[i], values[i], of[i]
        if budget <= 0 then -- the limit is reached: the rest goes back
          giveback(list, place, names, stamps, of, i)
          break
        end
        old[stamps[i]] = (old[stamps[i]] or 0) + 1
        if ghosts and passed(place, key) then value = false end
        if value then
          count = count + 1
          keys[count] = key
          flat[after + 2 * count - 1] = key
          flat[after + 2 * count] = value
          budget = budget - #value
          want = want - 1
          local _, weight = nil, 1
          if weights and weights[name] then
            _, weight = fairness(value)
            weighed[name] = weight
          end
          cost[name] = (cost[name] or 0) + math.floor(1000000 / weight)
          if list.limits and list.limits.bound then counts[name] = (counts[name] or 0) + 1 end
        end
      end
      local charged, known = {}, {} -- known: tag -> tag after one turn
      for name, turns in pairs(cost) do
        local tag = tags[name]
        local new = turns == 1000000 and known[tag] or string.format('%.0f', tag + turns)
        if turns == 1000000 then known[tag] = new end
        charged[#charged + 1] = new
        charged[#charged + 1] = name
      end
      if #charged > 0 then redis.call('ZADD', list.fair .. 'k' .. place - 1, unpack(charged)) end
      for name, taking in pairs(counts) do taken(list.limits, name, taking) end
      if weights then weigh(list, place, weighed) end
      retire(list, place)
    end
  end
  departed(list, old)
  return keys, flat, looked >= 2000 or budget <= 0 or want > 0 and redis.call('EXISTS', K.r()) > 0
end

-- withdraw removes a ready message from the turns. Far behind in a long list only a ghost records
-- that.
local function withdraw(list, place, key, value)
  local of, hash = fairness(value), list.fair .. 'f' .. place - 1
  local line = redis.call('HGET', hash, of)
  if not line then return ghost(place, key) end
  local elements, at, stamp = {}, nil, nil
  -- look searches for the message in an element, and remembers its index and its stamp.
  local function look(element)
    if at then return end
    local own = element
    if string.byte(element, 1) == 9 then stamp, own = string.sub(element, 2, 9), string.sub(element, 10) end
    if own == key then at = #elements end
  end
  for element in string.gmatch(string.sub(line, 2), '[^\n]+') do
    elements[#elements + 1] = element
    look(element)
  end
  local inline = #elements
  if string.byte(line, 1) == 43 then -- '+': a list follows
    local all = redis.call('LRANGE', hash .. ':' .. of, 0, 999)
    for i = 1, #all do
      elements[#elements + 1] = all[i]
      look(all[i])
    end
  end
  if not at then return ghost(place, key) end
  departed(list, {[stamp] = 1})
  local next = elements[at + 1]
  if next and string.byte(next, 1) ~= 9 then -- it has the same stamp
    elements[at + 1] = '\t' .. stamp .. next
    if at + 1 > inline then redis.call('LSET', hash .. ':' .. of, at - inline, elements[at + 1]) end
  end
  if at > inline then
    redis.call('LSET', hash .. ':' .. of, at - inline - 1, '')
    redis.call('LREM', hash .. ':' .. of, 1, '')
    return
  end
  table.remove(elements, at)
  local mark = string.sub(line, 1, 1)
  if inline == 1 and mark == '+' then -- the line gets the list's first elements
    local moved = redis.call('LPOP', hash .. ':' .. of, 8) or {}
    inline = #moved + 1
    if #moved < 8 then mark = '-' end
  end
  if inline > 1 then
    redis.call('HSET', hash, of, mark .. table.concat(elements, '\n', 1, inline - 1))
  else
    redis.call('HDEL', hash, of)
    unpark(list.fair, {of})
    retire(list, place)
  end
end

-- sameplace reports whether the stored message other can have the place of the ready one, value. If
-- so it stores the weight of other.
local function sameplace(list, value, other)
  local a, place = fairness(value), level(list, other)
  local b, weight = fairness(other)
  if a ~= b or level(list, value) ~= place then return false end
  if weight ~= 1 then weigh(list, place, {[b] = weight}) end
  return true
end

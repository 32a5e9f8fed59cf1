-- The ready messages of plain queues, in a list for each level. fair.lua has the same functions for
-- fair queues.

-- bounds returns the level bounds in levels, the text that the table m holds, as a list of numbers.
-- An empty list means one level.
local function bounds(levels)
  local list = {}
  for bound in string.gmatch(levels, '-?%d+') do list[#list + 1] = tonumber(bound) end
  return list
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

-- take removes ready messages from the lists, the most urgent first: at most want, and about budget
-- bytes but at least one message. look is the number of messages that it reads first. lower and turn
-- are those of passes. A pushed JSON task gets an id and is stored. Elements of deleted messages are
-- skipped.
--
-- Returns the keys, and a table that has after empty texts, then key, value, key, value, ... Returns
-- true too if it stopped at the limit of bytes: more may be ready.
local function take(list, want, budget, look, after, lower, turn)
  local ghosts
  local keys, flat, count = {}, {}, 0
  for i = 1, after do flat[i] = '' end
  local order, most = passes(list, lower, turn)
  local step = 1
  while order[step] and want > 0 and budget > 0 do
    local place = order[step]
    local got = most[step] > 0 and redis.call('LPOP', K.r(place), math.min(look, want, most[step]))
    if not got then
      step = step + 1
    else
      most[step] = most[step] - #got
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
  return keys, flat, budget <= 0
end

-- withdraw removes a ready message: only a ghost records that.
local function withdraw(_, place, key)
  ghost(place, key)
end

-- sameplace reports whether the stored message other can have the place of the ready one, value.
local function sameplace(list, value, other)
  return level(list, value) == level(list, other)
end

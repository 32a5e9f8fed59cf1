#!lua
-- Puts messages into a queue. A key that the queue has already, ready, waiting or held, is passed over: it is the same message.
-- KEYS: m t d l o c n s g h r
-- ARGV: 1 the levels as the caller knows them, 2 the channels but for the owner, 3 the number of messages that are due, 4 the number of those
--       that are not, 5 and following: key, value, of the due ones first, then the times of those that are not: see due.
-- Returns {1}, {0} if there is no such queue, {2, levels} if the queue has others.
local levels = redis.call('HGET', K.m, 'levels')
if not levels then return {0} end
if levels ~= ARGV[1] then return {2, levels} end
local count = ARGV[3] + ARGV[4]
local plain = ARGV[4] == '0' and ARGV[1] == ''
if plain then -- as it is nearly always: all are due and new, of no later generation, and there is one level
  local keys = {}
  for i = 1, count do
    local key = ARGV[3 + 2 * i]
    keys[i] = key
    if string.find(key, ' ', 1, true) then plain = false end
  end
  if plain and count == 1 then -- in one command
    if redis.call('HSETNX', K.t, ARGV[5], ARGV[6]) == 0 then return {1} end
  elseif plain then
    local have = redis.call('HMGET', K.t, unpack(keys))
    for i = 1, count do
      if have[i] then plain = false end
    end
  end
  if plain then
    if count > 1 and redis.call('HSET', K.t, unpack(ARGV, 5)) < count then -- some are twice in the batch
      local seen, once = {}, {}
      for i = 1, count do
        if not seen[keys[i]] then once[#once + 1] = keys[i] end
        seen[keys[i]] = true
      end
      keys = once
    end
    -- Where somebody waits and nothing else does, the messages need not go through the list.
    local owners = redis.call('ZRANGE', K.h, 0, 1)
    local owner = owners[1]
    if owner then
      local record = redis.call('HGET', K.c, owner) or ''
      local free = tonumber(string.match(record, '^%d+:(%d+):c:') or 0)
      if #keys == count and count <= free and redis.call('EXISTS', K.r(1)) == 0 then
        local flat, size = {}, 0
        for i = 1, 2 * count do
          flat[i] = ARGV[4 + i]
          size = size + #flat[i]
        end
        if size <= 65536 and offer(ARGV[2], owner, record, keys, flat, false, true, #owners == 1) then return {1} end
      end
    end
    redis.call('RPUSH', K.r(1), unpack(keys))
    if owner then hand({}, ARGV[2]) end
    return {1}
  end
end
local pairs_, times = {}, {}
for i = 1, 2 * count do pairs_[i] = ARGV[4 + i] end
for i = 1, tonumber(ARGV[4]) do times[i] = ARGV[4 + 2 * count + i] end
add(levels, ARGV[2], count, pairs_, times)
return {1}

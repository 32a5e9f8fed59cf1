#!lua
-- Adds messages to a queue. A key that is ready, delayed or held already is skipped: it is the same
-- message. Ready messages are given to waiting owners.
-- KEYS: m t d l o c n s g h a r
-- ARGV: in this order:
--   1  the levels as the caller knows them
--   2  the common beginning of the owners' channels
--   3  the number of messages without a time
--   4  the number of messages with a time
--   5  and following: key and value of each message, those without a time first; then the times, in
--      a form of due in lib.lua
-- Returns {1}, {0} if the queue does not exist, {2, levels} if it has other levels.
local levels = redis.call('HGET', K.m, 'levels')
if not levels then return {0} end
if levels ~= ARGV[1] then return {2, levels} end
local count = ARGV[3] + ARGV[4]
local plain = ARGV[4] == '0' and ARGV[1] == '' -- of plain queues
local plain = ARGV[4] == '0' -- of fair queues
if plain then -- the usual case: no times, one level or fair, and then: all new, of generation 0
  local keys = {}
  for i = 1, count do
    local key = ARGV[3 + 2 * i]
    keys[i] = key
    if string.find(key, ' ', 1, true) then plain = false end
  end
  if plain and count == 1 then -- one command suffices
    if redis.call('HSETNX', K.t, ARGV[5], ARGV[6]) == 0 then return {1} end
  elseif plain then
    local have = redis.call('HMGET', K.t, unpack(keys))
    for i = 1, count do
      if have[i] then plain = false end
    end
  end
  if plain then
    if count > 1 and redis.call('HSET', K.t, unpack(ARGV, 5)) < count then -- the batch has a key twice
      local seen, once = {}, {}
      for i = 1, count do
        if not seen[keys[i]] then once[#once + 1] = keys[i] end
        seen[keys[i]] = true
      end
      keys = once
    end
    -- If an owner waits and the list is empty, the messages are published without the list.
    local owners = redis.call('ZRANGE', K.h, 0, 1)
    local owner = owners[1]
    if owner then
      local record = redis.call('HGET', K.c, owner) or ''
      local free = tonumber(string.match(record, '^%d+:(%d+):c:') or 0)
      if #keys == count and count <= free and redis.call('EXISTS', K.r()) == 0 then
        local flat, size = {}, 0
        for i = 1, 2 * count do
          flat[i] = ARGV[4 + i]
          size = size + #flat[i]
        end
        if size <= 65536 and offer(ARGV[2], owner, record, keys, flat, false, true, #owners == 1) then return {1} end
      end
    end
    arrived(1, #keys, redis.call('RPUSH', K.r(1), unpack(keys))) -- of plain queues
    if owner then hand({}, ARGV[2]) end -- of plain queues
    local list, values = bounds(levels), #keys == count and {} or nil -- of fair queues
    for i = 1, values and count or 0 do values[i] = ARGV[4 + 2 * i] end -- of fair queues
    put(list, keys, false, values) -- of fair queues
    if owner then hand(list, ARGV[2], #keys) end -- of fair queues
    return {1}
  end
end
local pairs_, times = {}, {}
for i = 1, 2 * count do pairs_[i] = ARGV[4 + i] end
for i = 1, tonumber(ARGV[4]) do times[i] = ARGV[4 + 2 * count + i] end
add(levels, ARGV[2], count, pairs_, times)
return {1}

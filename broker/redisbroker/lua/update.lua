#!lua
-- Removes a waiting message, and stores another one in its place if that is given. If key, level
-- and readiness stay the same, the message keeps its place in the list.
-- KEYS: m t d l o c n s g h a r
-- ARGV: in this order:
--   1  the levels as the caller knows them
--   2  the common beginning of the owners' channels
--   3  the message's id, as the key of generation 0
--   4  the key of the other message; missing, like 5 and 6: only remove
--   5  its value
--   6  its time in a form of due in lib.lua, or 0
-- Returns {1}, {0} if the queue does not exist, {2, levels} if it has other levels, {4} if no such
-- message waits.
local levels = redis.call('HGET', K.m, 'levels')
if not levels then return {0} end
if levels ~= ARGV[1] then return {2, levels} end
local key, value, at = waiting(ARGV[3])
if not key then return {4} end
local list = bounds(levels)
local place = level(list, value)
local ready = true
if ARGV[6] and ARGV[6] ~= '0' then
  local now = clock()
  ready = due(ARGV[6], now) <= now
end
if ARGV[4] == key and not at and ready and sameplace(list, value, ARGV[5]) then -- the message keeps its place
  redis.call('HSET', K.t, key, ARGV[5])
  redis.call('HDEL', K.n, key)
  return {1}
end
if at then
  redis.call('ZREM', K.d, key)
else
  withdraw(list, place, key, value)
end
forget(K.t, K.n, K.g, {key})
if ARGV[4] then add(levels, ARGV[2], 1, {ARGV[4], ARGV[5]}, not ready and {ARGV[6]} or {}) end
return {1}

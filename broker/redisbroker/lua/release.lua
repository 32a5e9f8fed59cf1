#!lua flags=allow-oom
-- Returns held messages to the front of their ready lists, or delays them.
-- KEYS: m t d l o c n s h a r
-- ARGV: in this order:
--   1  the levels as the caller knows them
--   2  the common beginning of the owners' channels
-- Then for each message:
--   1  its key
--   2  the claim that holds it
--   3  the delay in microseconds, 0: none
--   4  1 if the delivery counts, 0 if not
-- Returns {1, text}: the text has a 1 for each returned message, and a 0 for each that is not held
-- under its claim, which stays as it is. Returns {0} if the queue does not exist, {2, levels} if it
-- has other levels.
local levels = redis.call('HGET', K.m, 'levels')
if not levels then return {0} end
if levels ~= ARGV[1] then return {2, levels} end
local now = clock()
local back, later, answer = {}, {}, {}
local gone = {} -- of fair queues
for i = 3, #ARGV, 4 do
  local key, ours = ARGV[i], redis.call('HGET', K.l, ARGV[i]) == ARGV[i + 1]
  answer[#answer + 1] = ours and '1' or '0'
  if ours then
    redis.call('HDEL', K.l, key)
    gone[#gone + 1] = key -- of fair queues
    if ARGV[i + 3] == '1' then redis.call('HINCRBY', K.n, key, 1) end
    local after = tonumber(ARGV[i + 2])
    if after > 0 then
      later[#later + 1] = now + after
      later[#later + 1] = key
    else
      back[#back + 1] = key
    end
  end
end
if #gone > 0 then places(string.sub(K.m, 1, -2), K.t, gone) end -- of fair queues
if #later > 0 then
  redis.call('ZADD', K.d, unpack(later))
  nudge(K.h, ARGV[2]) -- a waiting owner must wake earlier
end
if #back > 0 then
  local list = bounds(levels)
  put(list, back, true)
  hand(list, ARGV[2], #back)
end
return {1, table.concat(answer)}

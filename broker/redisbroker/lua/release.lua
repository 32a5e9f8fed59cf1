#!lua flags=allow-oom
-- Gives messages back: to the front of their lists, or to wait for some time.
-- KEYS: m t d l o c n s h r
-- ARGV: 1 the levels as the caller knows them, 2 the channels but for the owner, then of each message: key, claim, microseconds to wait or 0, 1 if
--       it was handed out, which counts, or 0.
-- Returns {1, a string with one character for each message: 1 given back, 0 not held under that claim}, {0} if there is no such
-- queue, {2, levels} if the queue has others.
local levels = redis.call('HGET', K.m, 'levels')
if not levels then return {0} end
if levels ~= ARGV[1] then return {2, levels} end
local now = clock()
local back, later, answer = {}, {}, {}
for i = 3, #ARGV, 4 do
  local key, ours = ARGV[i], redis.call('HGET', K.l, ARGV[i]) == ARGV[i + 1]
  answer[#answer + 1] = ours and '1' or '0'
  if ours then
    redis.call('HDEL', K.l, key)
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
if #later > 0 then
  redis.call('ZADD', K.d, unpack(later))
  nudge(ARGV[2]) -- that it sleeps for less long
end
if #back > 0 then
  local list = bounds(levels)
  put(list, back, true)
  hand(list, ARGV[2])
end
return {1, table.concat(answer)}

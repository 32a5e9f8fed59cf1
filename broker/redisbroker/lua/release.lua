#!lua flags=allow-oom
-- Gives messages back: to the front of their lists, or to wait for some time.
-- ARGV: 1 the levels as the caller knows them, 2 the channel, then of each message: key, the claim, microseconds to
--       wait or 0, 1 if it was handed out, which counts, or 0.
-- Returns {1, a string with one character for each message: 1 given back, 0 not held under that claim}, {0} if there is no such
-- queue, {2, levels} if the queue has others.
local meta = redis.call('HMGET', K[1], 'levels', 'idle')
if not meta[1] then return {0} end
if meta[1] ~= ARGV[1] then return {2, meta[1]} end
local count = (#ARGV - 2) / 4
local keys, claims = {}, {}
for i = 1, count do
  keys[i] = ARGV[4 * i - 1]
  claims[i] = ARGV[4 * i]
end
local ours = held(keys, claims)
local now = clock()
local back, later, answer = {}, {}, {}
for i = 1, count do
  answer[i] = '0'
  if ours[i] then
    answer[i] = '1'
    redis.call('HDEL', K[4], keys[i])
    if ARGV[4 * i + 2] == '1' then redis.call('HINCRBY', K[7], keys[i], 1) end
    local after = tonumber(ARGV[4 * i + 1])
    if after > 0 then
      later[#later + 1] = now + after
      later[#later + 1] = keys[i]
    else
      back[#back + 1] = keys[i]
    end
  end
end
if #later > 0 then redis.call('ZADD', K[3], unpack(later)) end
if #back > 0 then put(bounds(meta[1]), back, true) end
if #back + #later > 0 then wake(meta[2], ARGV[2]) end
return {1, table.concat(answer)}

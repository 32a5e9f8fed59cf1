#!lua flags=allow-oom
-- Ends an owner: what it holds goes back to the front, uncounted, some of it in each call.
-- ARGV: 1 the levels as the caller knows them, 2 the channel, 3 the owner.
-- Returns {1, 1 if there is no more}, {0} if there is no such queue, {2, levels} if the queue has others.
local meta = redis.call('HMGET', K[1], 'levels', 'idle')
if not meta[1] then return {0} end
if meta[1] ~= ARGV[1] then return {2, meta[1]} end
local from = ARGV[3] * SPAN
local keys = redis.call('ZRANGEBYSCORE', K[4], from, from + SPAN - 1, 'LIMIT', 0, 500)
if #keys > 0 then
  redis.call('ZREM', K[4], unpack(keys))
  put(bounds(meta[1]), keys, true)
  wake(meta[2], ARGV[2])
end
if #keys == 500 then return {1, 0} end
redis.call('ZREM', K[5], ARGV[3])
redis.call('HDEL', K[6], ARGV[3])
return {1, 1}

#!lua flags=no-writes
-- Counts a queue's messages.
-- ARGV: 1 the levels as the caller knows them.
-- Returns {1, ready, held, delayed, dead}, {0} if there is no such queue, {2, levels} if the queue has others.
local meta = redis.call('HMGET', K[1], 'levels', 'ghosts')
if not meta[1] then return {0} end
if meta[1] ~= ARGV[1] then return {2, meta[1]} end
local due = redis.call('ZCOUNT', K[3], '-inf', clock())
local ready = due - tonumber(meta[2] or 0)
for i = 1, math.max(1, #bounds(meta[1])) do ready = ready + redis.call('LLEN', K[10 + i]) end
return {1, ready, math.max(0, redis.call('HLEN', K[4]) - 1), redis.call('ZCARD', K[3]) - due, redis.call('LLEN', K[10])}

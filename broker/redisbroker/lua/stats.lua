#!lua flags=no-writes
-- Counts the messages of a queue. Delayed messages that are due count as ready.
-- KEYS: m d l x r
-- ARGV: 1 the levels as the caller knows them.
-- Returns {1, ready, held, delayed, dead, dropped dead letters}, {0} if the queue does not exist,
-- {2, levels} if it has other levels.
local meta = redis.call('HMGET', K.m, 'levels', 'ghosts', 'deaddropped')
if not meta[1] then return {0} end
if meta[1] ~= ARGV[1] then return {2, meta[1]} end
local due = redis.call('ZCOUNT', K.d, '-inf', clock())
local ready = due - tonumber(meta[2] or 0)
for place = 1, math.max(1, #bounds(meta[1])) do ready = ready + redis.call('LLEN', K.r(place)) end
local held = math.max(0, redis.call('HLEN', K.l) - 1)
return {1, ready, held, redis.call('ZCARD', K.d) - due, redis.call('LLEN', K.x), tonumber(meta[3] or 0)}

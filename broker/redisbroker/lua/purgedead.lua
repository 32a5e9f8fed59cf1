#!lua flags=allow-oom
-- Removes dead letters, the oldest first.
-- KEYS: m x
-- ARGV: 1 how many at most.
-- Returns {1, how many}, {0} if there is no such queue.
if redis.call('EXISTS', K.m) == 0 then return {0} end
local count = math.min(redis.call('LLEN', K.x), tonumber(ARGV[1]))
if count > 0 then redis.call('LTRIM', K.x, count, -1) end
return {1, count}

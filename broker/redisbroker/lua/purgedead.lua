#!lua flags=allow-oom
-- Removes dead letters, the oldest first.
-- KEYS: m x
-- ARGV: 1 the maximum number.
-- Returns {1, number of removed letters}, {0} if the queue does not exist.
if redis.call('EXISTS', K.m) == 0 then return {0} end
local count = math.min(redis.call('LLEN', K.x), tonumber(ARGV[1]))
if count > 0 then redis.call('LTRIM', K.x, count, -1) end
return {1, count}

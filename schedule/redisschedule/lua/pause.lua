-- Pauses an entry: its place in the order of time is taken away, so that listeners of others leave it alone as well.
-- KEYS: jobs, next, swarmiji
-- ARGV: the id, the member of the entry
-- Returns 1, or 0 if there is no such entry.
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then return 0 end
redis.call('HSET', KEYS[3], 'paused:' .. ARGV[1], '1')
redis.call('ZREM', KEYS[2], ARGV[2])
return 1

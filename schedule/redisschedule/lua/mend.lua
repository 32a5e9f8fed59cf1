-- Gives an entry a place in the order of time if it has none and is not paused.
-- KEYS: jobs, next, swarmiji
-- ARGV: the id, the member of the entry, its time in milliseconds
-- Returns 1 if it did, else 0.
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 or redis.call('HEXISTS', KEYS[3], 'paused:' .. ARGV[1]) == 1 then return 0 end
return redis.call('ZADD', KEYS[2], 'NX', ARGV[3], ARGV[2])

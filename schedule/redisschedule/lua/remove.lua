#!lua flags=allow-oom
-- Takes an entry away. Claims on its ticks end with their leases.
-- KEYS: jobs, next, swarmiji
-- ARGV: the id, the member of the entry
-- Returns 1, or 0 if there was none.
redis.call('ZREM', KEYS[2], ARGV[2])
redis.call('HDEL', KEYS[3], 'paused:' .. ARGV[1], 'state:' .. ARGV[1], 'last:' .. ARGV[1])
return redis.call('HDEL', KEYS[1], ARGV[1])

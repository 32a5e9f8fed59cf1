#!lua flags=allow-oom
-- Takes an entry away. Claims on its ticks end with their leases.
-- KEYS: jobs, next, swarmiji, and jobs and next of our own layout
-- ARGV: the id, the member of the entry
-- Returns 1, or 0 if there was none.
local jobs, next = layout_of(ARGV[1])
redis.call('ZREM', next, ARGV[2])
redis.call('HDEL', KEYS[3], 'paused:' .. ARGV[1], 'state:' .. ARGV[1], 'last:' .. ARGV[1])
return redis.call('HDEL', jobs, ARGV[1])

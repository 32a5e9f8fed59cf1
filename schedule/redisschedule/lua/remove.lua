#!lua flags=allow-oom
-- Removes an entry. Claims on its ticks end with their leases.
-- KEYS: jobs, next, swarmiji, and jobs and next of the own layout
-- ARGV: the id, the member of the entry
-- Returns 1, or 0 if the entry did not exist.
local jobs, next = layout_of(ARGV[1])
redis.call('ZREM', next, ARGV[2])
redis.call('HDEL', KEYS[3], 'paused:' .. ARGV[1], 'state:' .. ARGV[1], 'last:' .. ARGV[1])
return redis.call('HDEL', jobs, ARGV[1])

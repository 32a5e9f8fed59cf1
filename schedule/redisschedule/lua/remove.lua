#!lua flags=allow-oom
-- Removes an entry. Claims on its ticks end with their leases.
-- KEYS: jobs, next, swarmiji, and jobs and next of the own layout
-- ARGV: the id, the member of the entry
-- Returns 1, or 0 if the entry did not exist.
local jobs, next = layout_of(ARGV[1])
redis.call('ZREM', next, ARGV[2])
local id = ARGV[1]
redis.call('HDEL', KEYS[3], 'paused:' .. id, 'state:' .. id, 'last:' .. id, 'runs:' .. id, 'group:' .. id, 'version:' .. id)
return redis.call('HDEL', jobs, ARGV[1])

-- Pauses an entry: its place in the order of time is taken away, so that listeners of others leave it alone as well.
-- KEYS: jobs, next, swarmiji, and jobs and next of our own layout
-- ARGV: the id, the member of the entry
-- Returns 1, or 0 if there is no such entry.
local jobs, next = layout_of(ARGV[1])
if redis.call('HEXISTS', jobs, ARGV[1]) == 0 then return 0 end
redis.call('HSET', KEYS[3], 'paused:' .. ARGV[1], '1')
redis.call('ZREM', next, ARGV[2])
return 1

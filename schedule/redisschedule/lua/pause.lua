-- Pauses an entry: removes its due time, so that listeners of other programs do not run it either.
-- KEYS: jobs, next, swarmiji, and jobs and next of the own layout
-- ARGV: the id, the member of the entry
-- Returns 1, or 0 if the entry does not exist.
local jobs, next = layout_of(ARGV[1])
if redis.call('HEXISTS', jobs, ARGV[1]) == 0 then return 0 end
redis.call('HSET', KEYS[3], 'paused:' .. ARGV[1], '1')
redis.call('ZREM', next, ARGV[2])
return 1

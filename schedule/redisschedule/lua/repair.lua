-- Sets the due time of an entry that has no due time and is not paused.
-- KEYS: jobs, next, swarmiji, and jobs and next of the own layout
-- ARGV: the id, the member of the entry, its time in milliseconds
-- Returns 1 if it did, else 0.
local jobs, next = layout_of(ARGV[1])
if redis.call('HEXISTS', jobs, ARGV[1]) == 0 or redis.call('HEXISTS', KEYS[3], 'paused:' .. ARGV[1]) == 1 then return 0 end
return redis.call('ZADD', next, 'NX', ARGV[3], ARGV[2])

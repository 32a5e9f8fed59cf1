-- Gives a paused entry a place in the order of time again.
-- KEYS: jobs, next, swarmiji, and jobs and next of our own layout
-- ARGV: the id, the member of the entry, its time in milliseconds or ''
-- Returns 1, or 0 if there is no such entry. One that was not paused is left as it is.
local jobs, next = layout_of(ARGV[1])
if redis.call('HEXISTS', jobs, ARGV[1]) == 0 then return 0 end
if redis.call('HDEL', KEYS[3], 'paused:' .. ARGV[1]) == 1 and ARGV[3] ~= '' then
  redis.call('ZADD', next, 'NX', ARGV[3], ARGV[2])
end
return 1

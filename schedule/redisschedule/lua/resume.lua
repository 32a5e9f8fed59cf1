-- Ends the pause of an entry and sets its due time.
-- KEYS: jobs, next, swarmiji, and jobs and next of the own layout
-- ARGV: the id, the member of the entry, its time in milliseconds or ''
-- Returns 1, or 0 if the entry does not exist. An entry that is not paused is not changed.
local jobs, next = layout_of(ARGV[1])
if redis.call('HEXISTS', jobs, ARGV[1]) == 0 then return 0 end
if redis.call('HDEL', KEYS[3], 'paused:' .. ARGV[1]) == 1 and ARGV[3] ~= '' then
  redis.call('ZADD', next, 'NX', ARGV[3], ARGV[2])
end
return 1

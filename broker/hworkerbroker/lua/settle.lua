-- Ends a job that is in progress. Every way a job can end is here, and each does something only if the note of the job was
-- still there and was ours: a job that a monitor took back meanwhile belongs to the queue, or to its next worker.
--
-- KEYS[1]  the progress
-- KEYS[2]  where the job goes: the jobs, the failed ones, the broken ones, or the jobs of its successor's queue
-- ARGV[1]  the payload
-- ARGV[2]  done     it is over
--          front    back to the queue, as the next one
--          replace  another payload, ARGV[3], to the back of a queue
--          failed   to the list of the failed ones, of which the newest ARGV[3] are kept
--          broken   to the hash of those that cannot be read, with the time
-- ARGV[3]  see above; else ""
-- ARGV[4...]  the start times that the note may have: the payload alone would also fit the note of a later worker
-- Returns 1, or 0 if nothing was done.
local start = redis.call('HGET', KEYS[1], ARGV[1])
local ours = false
for i = 4, #ARGV do
  ours = ours or start == ARGV[i]
end
if not ours or redis.call('HDEL', KEYS[1], ARGV[1]) ~= 1 then
  return 0
end
if ARGV[2] == 'front' then
  redis.call('RPUSH', KEYS[2], ARGV[1])
elseif ARGV[2] == 'replace' then
  redis.call('LPUSH', KEYS[2], ARGV[3])
elseif ARGV[2] == 'failed' then
  redis.call('LPUSH', KEYS[2], ARGV[1])
  redis.call('LTRIM', KEYS[2], 0, tonumber(ARGV[3]) - 1)
elseif ARGV[2] == 'broken' then
  redis.call('HSET', KEYS[2], ARGV[1], ago(0))
end
return 1

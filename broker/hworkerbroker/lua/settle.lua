-- Ends a job that is in progress. It does so only if this process still holds the job: a job that a
-- monitor has returned belongs to the queue, or to its next worker.
--
-- KEYS[1]     the jobs in progress: hash of payload -> start time
-- KEYS[2]     where the job goes: the jobs, the failed jobs, the broken jobs, or the jobs of its
--             successor's queue
-- ARGV[1]     the payload
-- ARGV[2]     the operation:
--   done     removes the job
--   front    returns the job to the front of its queue
--   replace  adds another payload, ARGV[3], at the back of a queue
--   failed   adds the job to the failed jobs, of which the newest ARGV[3] stay
--   broken   adds the job to the broken jobs, with the time
-- ARGV[3]     see the operations; otherwise ""
-- ARGV[4...]  the start times that this process may have stored. The payload alone proves nothing:
--             a later worker stores the same one.
-- Returns 1, or 0 if the job is not held: then nothing was changed.
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

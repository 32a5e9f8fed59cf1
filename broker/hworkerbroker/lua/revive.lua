-- Queues a failed job again, in a new payload.
--
-- KEYS[1]  the failed ones
-- KEYS[2]  the jobs
-- ARGV[1]  the payload as it stands among the failed ones
-- ARGV[2]  the new payload
-- Returns 1, or 0 if it was not there any more.
if redis.call('LREM', KEYS[1], -1, ARGV[1]) == 0 then
  return 0
end
redis.call('LPUSH', KEYS[2], ARGV[2])
return 1

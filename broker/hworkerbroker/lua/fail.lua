-- Adds a payload to the failed or the broken jobs.
--
-- KEYS[1]  the failed jobs, a list, or the broken jobs, a hash
-- ARGV[1]  the payload
-- ARGV[2]  for failed jobs: how many of the newest stay; the others are removed. For broken jobs:
--          ""
-- Returns 1.
if ARGV[2] == '' then
  redis.call('HSET', KEYS[1], ARGV[1], ago(0))
  return 1
end
redis.call('LPUSH', KEYS[1], ARGV[1])
redis.call('LTRIM', KEYS[1], 0, tonumber(ARGV[2]) - 1)
return 1

-- Adds a payload to the failed jobs, or to those that cannot be read.
--
-- KEYS[1]  the failed ones, or the broken ones
-- ARGV[1]  the payload
-- ARGV[2]  of the failed ones how many of the newest are kept; of the broken ones ""
-- Returns 1.
if ARGV[2] == '' then
  redis.call('HSET', KEYS[1], ARGV[1], ago(0))
  return 1
end
redis.call('LPUSH', KEYS[1], ARGV[1])
redis.call('LTRIM', KEYS[1], 0, tonumber(ARGV[2]) - 1)
return 1

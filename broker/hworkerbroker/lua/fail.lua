-- Adds a payload to the failed jobs.
--
-- KEYS[1]  the failed ones
-- ARGV[1]  the payload
-- ARGV[2]  how many of the newest are kept
-- Returns 1.
redis.call('LPUSH', KEYS[1], ARGV[1])
redis.call('LTRIM', KEYS[1], 0, tonumber(ARGV[2]) - 1)
return 1

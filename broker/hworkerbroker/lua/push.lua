-- Adds jobs at the back of a queue.
--
-- KEYS[1]  the jobs
-- ARGV     the payloads, the first to run first
-- Returns the number of waiting jobs.
return redis.call('LPUSH', KEYS[1], unpack(ARGV))

-- Queues jobs.
--
-- KEYS[1]  the jobs
-- ARGV     the payloads, the first to run first
-- Returns how many jobs wait.
return redis.call('LPUSH', KEYS[1], unpack(ARGV))

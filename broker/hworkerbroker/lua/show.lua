-- Reads a queue without changing it.
--
-- KEYS[1...4]  the jobs, the jobs in progress, the broken jobs, the failed jobs
-- ARGV[1]      sizes, jobs, progress, broken or failed
-- ARGV[2, 3]   for jobs: the first and the last index; none: all
-- Returns for sizes the four sizes, in the order of KEYS. For jobs and failed: the payloads, from
-- left to right. For progress and broken: payload, time, payload, time, ...
if ARGV[1] == 'sizes' then
  return { redis.call('LLEN', KEYS[1]), redis.call('HLEN', KEYS[2]), redis.call('HLEN', KEYS[3]), redis.call('LLEN', KEYS[4]) }
elseif ARGV[1] == 'jobs' then
  return redis.call('LRANGE', KEYS[1], ARGV[2] or 0, ARGV[3] or -1)
elseif ARGV[1] == 'progress' then
  return redis.call('HGETALL', KEYS[2])
elseif ARGV[1] == 'broken' then
  return redis.call('HGETALL', KEYS[3])
end
return redis.call('LRANGE', KEYS[4], 0, -1)

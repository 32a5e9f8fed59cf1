-- Reads a queue without changing it.
--
-- KEYS[1...4]  the jobs, the progress, the broken ones, the failed ones
-- ARGV[1]  sizes, jobs, progress, broken or failed
-- Returns the four sizes; or the payloads of a list, as they stand in it; or payload, time, payload, time of a hash.
if ARGV[1] == 'sizes' then
  return { redis.call('LLEN', KEYS[1]), redis.call('HLEN', KEYS[2]), redis.call('HLEN', KEYS[3]), redis.call('LLEN', KEYS[4]) }
elseif ARGV[1] == 'jobs' then
  return redis.call('LRANGE', KEYS[1], 0, -1)
elseif ARGV[1] == 'progress' then
  return redis.call('HGETALL', KEYS[2])
elseif ARGV[1] == 'broken' then
  return redis.call('HGETALL', KEYS[3])
end
return redis.call('LRANGE', KEYS[4], 0, -1)

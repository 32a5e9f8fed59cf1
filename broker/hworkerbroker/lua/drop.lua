-- Removes failed jobs, or those that cannot be read.
--
-- KEYS[1]     the failed ones, or the broken ones
-- ARGV[1]     failed or broken
-- ARGV[2...]  the payloads as they stand there
-- Returns how many were there.
local n = 0
for i = 2, #ARGV do
  if ARGV[1] == 'broken' then
    n = n + redis.call('HDEL', KEYS[1], ARGV[i])
  else
    n = n + redis.call('LREM', KEYS[1], -1, ARGV[i])
  end
end
return n

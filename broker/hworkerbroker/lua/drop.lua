-- Removes given payloads from the failed or the broken jobs.
--
-- KEYS[1]     the failed jobs, a list, or the broken jobs, a hash
-- ARGV[1]     failed or broken
-- ARGV[2...]  the payloads, byte for byte
-- Returns the number of removed payloads.
local n = 0
for i = 2, #ARGV do
  if ARGV[1] == 'broken' then
    n = n + redis.call('HDEL', KEYS[1], ARGV[i])
  else
    n = n + redis.call('LREM', KEYS[1], -1, ARGV[i])
  end
end
return n

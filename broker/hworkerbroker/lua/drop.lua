-- Removes failed jobs.
--
-- KEYS[1]  the failed ones
-- ARGV     the payloads as they stand among the failed ones
-- Returns how many were there.
local n = 0
for i = 1, #ARGV do
  n = n + redis.call('LREM', KEYS[1], -1, ARGV[i])
end
return n

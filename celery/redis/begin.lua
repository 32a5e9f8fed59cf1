-- Claims a task for one copy of it.
--
-- KEYS[1]  key of the claim
-- ARGV[1]  name of the copy
-- ARGV[2]  time to live of a new claim in milliseconds
-- returns  the name of the copy that has the claim
--
-- Running it again with the same arguments changes nothing.

local first = redis.call('GET', KEYS[1])
if first then
  return first
end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return ARGV[1]

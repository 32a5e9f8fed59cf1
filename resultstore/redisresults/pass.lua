-- Moves a claim from its holder to the next one.
--
-- KEYS[1]   holder of the key
-- ARGV[1]   name of the holder
-- ARGV[2]   name of the next holder; it may have the claim already
-- ARGV[3]   duration of the claim in milliseconds
-- returns   1, or 0 if neither of the two holders has the claim

local holder = redis.call('GET', KEYS[1])
if holder ~= ARGV[1] and holder ~= ARGV[2] then
  return 0
end
redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
return 1

-- Gives a key from its holder to the next one.
--
-- KEYS[1]   holder of the key
-- ARGV[1]   name of the holder
-- ARGV[2]   name of the next one; it may have the key already
-- ARGV[3]   how long the next one has the key, in milliseconds
-- returns   1, or 0 if another one or nobody has the key

local holder = redis.call('GET', KEYS[1])
if holder ~= ARGV[1] and holder ~= ARGV[2] then
  return 0
end
redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
return 1

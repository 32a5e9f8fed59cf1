-- Sets the holder of a key if the key has none.
--
-- KEYS[1]   holder of the key
-- ARGV[1]   name of the holder that claims the key
-- ARGV[2]   duration of the claim in milliseconds
-- returns   the holder of the key after the call

local holder = redis.call('GET', KEYS[1])
if holder then
  return holder
end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return ARGV[1]

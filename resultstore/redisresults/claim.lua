-- Gives a key to a holder if nobody has it.
--
-- KEYS[1]   holder of the key
-- ARGV[1]   name of the holder that asks
-- ARGV[2]   how long it has the key then, in milliseconds
-- returns   the holder that has the key then

local holder = redis.call('GET', KEYS[1])
if holder then
  return holder
end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return ARGV[1]

-- Replaces the value of a key if the caller knows it.
--
-- KEYS[1]   value of the key
-- ARGV[1]   the known value; empty: the key is free
-- ARGV[2]   the next value; the key may have it already
-- ARGV[3]   retention of the next value in milliseconds
-- returns   1 if the key has the next value, otherwise the value that stayed, empty if it is free

local value = redis.call('GET', KEYS[1]) or ''
if value ~= ARGV[1] and value ~= ARGV[2] then
  return value
end
redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
return 1

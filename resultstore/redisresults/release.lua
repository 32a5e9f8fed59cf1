-- Ends the claim of a holder. What another one has stays.
--
-- KEYS[1]   holder of the key
-- ARGV[1]   name of the holder
-- returns   1, or 0 if there was nothing to end

if redis.call('GET', KEYS[1]) == ARGV[1] then
  return redis.call('DEL', KEYS[1])
end
return 0

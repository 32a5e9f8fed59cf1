-- Ends the claim of a holder. The claim of another holder stays.
--
-- KEYS[1]   holder of the key
-- ARGV[1]   name of the holder
-- returns   1, or 0 if the holder does not have the claim

if redis.call('GET', KEYS[1]) == ARGV[1] then
  return redis.call('DEL', KEYS[1])
end
return 0

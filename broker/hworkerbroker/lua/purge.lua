-- Deletes a list, and a hash if that is given.
--
-- KEYS[1]  the list
-- KEYS[2]  the hash; may be missing
-- Returns the number of their entries.
local n = redis.call('LLEN', KEYS[1])
if KEYS[2] then
  n = n + redis.call('HLEN', KEYS[2])
end
redis.call('DEL', unpack(KEYS))
return n

-- Removes a list.
--
-- KEYS[1]  the list
-- Returns how long it was.
local n = redis.call('LLEN', KEYS[1])
redis.call('DEL', KEYS[1])
return n

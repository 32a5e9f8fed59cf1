-- Deletes keys.
--
-- KEYS  all four of a queue
-- Returns how many there were.
return redis.call('DEL', unpack(KEYS))

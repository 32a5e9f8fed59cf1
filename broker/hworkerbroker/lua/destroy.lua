-- Deletes the keys of a queue.
--
-- KEYS     the four keys of the queue
-- Returns the number of keys that existed.
return redis.call('DEL', unpack(KEYS))

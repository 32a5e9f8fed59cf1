#!lua flags=allow-oom
-- Moves a message that is held to the dead letters.
-- KEYS: m t l n g x
-- ARGV: 1 its key, 2 its claim; 3 to 8 as deadletter takes them.
-- Returns 1, or 0 if it is not held under that claim.
local key = ARGV[1]
if redis.call('HGET', K.l, key) ~= ARGV[2] then return 0 end
local value = redis.call('HGET', K.t, key) or ''
redis.call('HDEL', K.l, key)
forget(K.t, K.n, K.g, {key})
deadletter(key, value, 3)
return 1

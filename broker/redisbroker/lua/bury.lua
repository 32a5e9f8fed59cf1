#!lua flags=allow-oom
-- Moves a message that is held to the dead letters.
-- KEYS: t l n g x
-- ARGV: 1 its key, 2 its claim, 3 the reason.
-- Returns 1, or 0 if it is not held under that claim.
local key, reason = ARGV[1], ARGV[3]
if redis.call('HGET', K.l, key) ~= ARGV[2] then return 0 end
local value = redis.call('HGET', K.t, key) or ''
redis.call('HDEL', K.l, key)
forget(K.t, K.n, K.g, {key})
local t = redis.call('TIME')
redis.call('RPUSH', K.x, struct.pack('>I4I4I2I4', t[1], t[2], #key, #reason) .. key .. reason .. value)
return 1

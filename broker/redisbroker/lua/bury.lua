#!lua flags=allow-oom
-- Moves a held message to the dead letters.
-- KEYS: m t l n g x
-- ARGV: 1 its key, 2 its claim, 3 to 8 as deadletter in lib.lua reads them.
-- Returns 1, or 0 if the message is not held under that claim: then nothing was changed.
local key = ARGV[1]
if redis.call('HGET', K.l, key) ~= ARGV[2] then return 0 end
local value = redis.call('HGET', K.t, key) or ''
redis.call('HDEL', K.l, key)
places(string.sub(K.m, 1, -2), K.t, {key}) -- of fair queues
forget(K.t, K.n, K.g, {key})
deadletter(key, value, 3)
return 1

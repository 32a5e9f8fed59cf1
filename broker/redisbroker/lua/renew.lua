#!lua flags=allow-oom
-- Renews an owner's lease, unless it has ended.
-- KEYS: o
-- ARGV: 1 the owner, 2 the lease in microseconds.
-- Returns 1, or 0 if the lease has ended.
local now = clock()
local till = redis.call('ZSCORE', K.o, ARGV[1])
if not till or tonumber(till) <= now then return 0 end
redis.call('ZADD', K.o, now + ARGV[2], ARGV[1])
return 1

#!lua flags=allow-oom
-- Gives a subscription the number under which it may hold messages, for as long as it renews it. Makes the queue if need be.
-- KEYS: m l o c
-- ARGV: 1 the lease in microseconds.
-- Returns {1, levels, the owner's number}.
redis.call('HSETNX', K.m, 'levels', '')
redis.call('HSETNX', K.m, 'version', '1')
-- A long value keeps the table out of the compact form that Redis gives to small ones, where finding a field takes long.
redis.call('HSETNX', K.l, '', 'This value keeps the table out of the compact form that is slow to search.')
local owner = redis.call('HINCRBY', K.m, 'owners', 1)
redis.call('ZADD', K.o, clock() + ARGV[1], owner)
redis.call('HSET', K.c, owner, '0:0:n:')
return {1, redis.call('HGET', K.m, 'levels'), owner}

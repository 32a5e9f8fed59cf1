#!lua flags=allow-oom
-- Notes the number under which a subscription may hold messages, for as long as it renews it. Makes the queue if need be. The
-- number is random and not counted here: a count that a failover turns back would be given to two owners.
-- KEYS: m l o c
-- ARGV: 1 the lease in microseconds, 2 the owner's number.
-- Returns {1, levels}.
redis.call('HSETNX', K.m, 'levels', '')
redis.call('HSETNX', K.m, 'version', '1')
-- A long value keeps the table out of the compact form that Redis gives to small ones, where finding a field takes long.
redis.call('HSETNX', K.l, '', 'This value keeps the table out of the compact form that is slow to search.')
redis.call('ZADD', K.o, clock() + ARGV[1], ARGV[2])
redis.call('HSET', K.c, ARGV[2], '0:0:n:')
return {1, redis.call('HGET', K.m, 'levels')}

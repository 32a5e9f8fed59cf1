#!lua flags=allow-oom
-- Registers an owner: the number under which a subscription holds messages while it renews its
-- lease. It creates the queue if that does not exist. The number is random. A counter on the server
-- could go back in a failover, and two owners would get one number.
-- KEYS: m l o c
-- ARGV: 1 the lease in microseconds, 2 the owner's number.
-- Returns {1, levels}.
redis.call('HSETNX', K.m, 'levels', '')
redis.call('HSETNX', K.m, 'version', '1')
-- A long value makes Redis store the table as a hash table. In the compact form of small tables a
-- search for a field is slow.
redis.call('HSETNX', K.l, '', 'This value keeps the table out of the compact form that is slow to search.')
redis.call('ZADD', K.o, clock() + ARGV[1], ARGV[2])
redis.call('HSET', K.c, ARGV[2], '0:0:n:')
return {1, redis.call('HGET', K.m, 'levels')}

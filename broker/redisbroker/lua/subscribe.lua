#!lua flags=allow-oom
-- Gives a subscription the number under which it may hold messages, for as long as it renews it. Makes the queue if need be.
-- ARGV: 1 the lease in microseconds.
-- Returns {1, levels, the owner's number}.
redis.call('HSETNX', K[1], 'levels', '')
redis.call('HSETNX', K[1], 'version', '1')
-- A long value keeps the table out of the compact form that Redis gives to small ones, where finding a field takes long.
redis.call('HSETNX', K[4], '', 'This value keeps the table out of the compact form that is slow to search.')
local owner = redis.call('HINCRBY', K[1], 'owners', 1)
redis.call('ZADD', K[5], clock() + ARGV[1], owner)
return {1, redis.call('HGET', K[1], 'levels'), owner}

#!lua
-- Makes a queue that does not exist.
-- KEYS: m
-- ARGV: 1 the levels it shall have: bounds, separated by commas.
-- Returns {1, its levels}.
redis.call('HSETNX', K.m, 'levels', ARGV[1])
redis.call('HSETNX', K.m, 'version', '1')
return {1, redis.call('HGET', K.m, 'levels')}

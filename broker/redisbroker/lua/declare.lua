#!lua
-- Creates a queue that does not exist.
-- KEYS: m
-- ARGV: 1 its levels: the upper bounds, separated by commas.
-- Returns {1, levels}: those that the queue has, which may be others.
redis.call('HSETNX', K.m, 'levels', ARGV[1])
redis.call('HSETNX', K.m, 'version', '1')
return {1, redis.call('HGET', K.m, 'levels')}

#!lua
-- Makes a queue that does not exist.
-- ARGV: 1 the levels it shall have: bounds, separated by commas.
-- Returns {1, its levels}.
redis.call('HSETNX', K[1], 'levels', ARGV[1])
redis.call('HSETNX', K[1], 'version', '1')
return {1, redis.call('HGET', K[1], 'levels')}

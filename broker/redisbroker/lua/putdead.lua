#!lua flags=allow-oom
-- Adds a dead letter. A queue that does not exist is created, with one level.
-- KEYS: m x
-- ARGV: 1 the message's key, 2 the stored message, 3 to 8 as deadletter in lib.lua reads them.
-- Returns 1.
redis.call('HSETNX', K.m, 'levels', '')
redis.call('HSETNX', K.m, 'version', '1')
deadletter(ARGV[1], ARGV[2], 3)
return 1

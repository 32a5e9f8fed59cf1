#!lua flags=no-writes
-- Answers that a plain queue has no fairness keys. fairkeys.lua reads those of a fair queue.
-- KEYS: m r
-- ARGV: 1 the levels as the caller knows them, and those of fairkeys.lua.
-- Returns {4}, {0} if the queue does not exist, {2, levels} if it has other levels.
local levels = redis.call('HGET', K.m, 'levels')
if not levels then return {0} end
if levels ~= ARGV[1] then return {2, levels} end
return {4}

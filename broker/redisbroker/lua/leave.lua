#!lua flags=allow-oom
-- Ends an owner: what it holds goes back to the front, uncounted, some of it in each call.
-- KEYS: m t l o c n s h r
-- ARGV: 1 the levels as the caller knows them, 2 the channels but for the owner, 3 the owner.
-- Returns {1, 1 if there is no more}, {0} if there is no such queue, {2, levels} if the queue has others.
local levels = redis.call('HGET', K.m, 'levels')
if not levels then return {0} end
if levels ~= ARGV[1] then return {2, levels} end
local list = bounds(levels)
redis.call('ZREM', K.h, ARGV[3])
local moved, more = reclaim(list, ARGV[3], false)
if moved > 0 then hand(list, ARGV[2]) end
return {1, more and 0 or 1}

#!lua flags=allow-oom
-- Removes an owner. Its messages go back to the front of the queue, at least 200 with each call
-- while there are so many. Their deliveries do not count.
-- KEYS: m t l o c n s h a r
-- ARGV: 1 the levels as the caller knows them, 2 the common beginning of the owners' channels, 3
-- the owner.
-- Returns {1, 1} if the owner is removed, {1, 0} if the script must be called again. Returns {0} if
-- the queue does not exist, {2, levels} if it has other levels.
local levels = redis.call('HGET', K.m, 'levels')
if not levels then return {0} end
if levels ~= ARGV[1] then return {2, levels} end
local list = bounds(levels)
redis.call('ZREM', K.h, ARGV[3])
local moved, more = reclaim(list, ARGV[3], false)
-- The remaining owners may be of an earlier version, which returns no keys to the turns.
if not more and unparksome(list.fair, 1000) > 0 then nudge(K.h, ARGV[2]) end -- of fair queues
if moved > 0 then hand(list, ARGV[2]) end
return {1, more and 0 or 1}

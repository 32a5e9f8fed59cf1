#!lua flags=allow-oom
-- Ends an owner: what it holds goes back to the front, uncounted, some of it in each call.
-- KEYS: m t l o c n r
-- ARGV: 1 the levels as the caller knows them, 2 the channel, 3 the owner.
-- Returns {1, 1 if there is no more}, {0} if there is no such queue, {2, levels} if the queue has others.
local meta = redis.call('HMGET', K.m, 'levels', 'idle')
if not meta[1] then return {0} end
if meta[1] ~= ARGV[1] then return {2, meta[1]} end
local moved, more = reclaim(bounds(meta[1]), ARGV[3], false)
if moved > 0 then wake(meta[2], ARGV[2]) end
return {1, more and 0 or 1}

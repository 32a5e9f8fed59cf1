#!lua flags=allow-oom
-- Replaces a held message by its successor, in the same queue or, unless the server is a cluster,
-- in another one. Both steps happen, or none.
-- KEYS: from.t from.l from.n from.g m t d l o c n s g h a r
-- ARGV: in this order:
--   1  the levels of the successor's queue, as the caller knows them
--   2  the common beginning of the owners' channels of that queue
--   3  the key of the held message
--   4  the claim that holds it
--   5  the successor's key
--   6  its value
--   7  its time in a form of due in lib.lua, or 0
--   8  1 if the queue of the held message is fair, otherwise 0
-- Returns {1}, {0} if the successor's queue does not exist, {2, levels} if it has other levels, {4}
-- if the message is not held under that claim.
local levels = redis.call('HGET', K.m, 'levels')
if not levels then return {0} end
if levels ~= ARGV[1] then return {2, levels} end
if redis.call('HGET', K.from.l, ARGV[3]) ~= ARGV[4] then return {4} end
redis.call('HDEL', K.from.l, ARGV[3])
if ARGV[8] == '1' then places(string.sub(K.from.l, 1, -2), K.from.t, {ARGV[3]}) end
forget(K.from.t, K.from.n, K.from.g, {ARGV[3]}) -- first: otherwise add would skip a successor of the same key
add(levels, ARGV[2], 1, {ARGV[5], ARGV[6]}, ARGV[7] ~= '0' and {ARGV[7]} or {})
return {1}

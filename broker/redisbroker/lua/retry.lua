#!lua flags=allow-oom
-- Replaces a message that is held by its successor, in the same queue or, where the server is no cluster, in another: both or
-- neither.
-- KEYS: from.t from.l from.n from.g m t d l o c n s g h r
-- ARGV: 1 the levels of the queue it goes to, as the caller knows them, 2 the channels of that queue but for the owner, 3 the key that is held in
--       the queue it comes from, 4 its claim, 5 the successor's key, 6 its value, 7 its time (see due) or 0.
-- Returns {1}, {0} if there is no such queue, {2, levels} if the queue has others, {4} if the message is not held under that
-- claim.
local levels = redis.call('HGET', K.m, 'levels')
if not levels then return {0} end
if levels ~= ARGV[1] then return {2, levels} end
if redis.call('HGET', K.from.l, ARGV[3]) ~= ARGV[4] then return {4} end
redis.call('HDEL', K.from.l, ARGV[3])
forget(K.from.t, K.from.n, K.from.g, {ARGV[3]}) -- first, or a successor of the same key would be no news
add(levels, ARGV[2], 1, {ARGV[5], ARGV[6]}, ARGV[7] ~= '0' and {ARGV[7]} or {})
return {1}

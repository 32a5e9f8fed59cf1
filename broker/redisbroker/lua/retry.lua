#!lua flags=allow-oom
-- Replaces a message that is held by its successor, in the same queue or, where the server is no cluster, in another: both or
-- neither. The keys of the queue to which it goes stand in KEYS; those of the other queue (m to x) follow after them.
-- ARGV: 1 the levels of the queue it goes to, as the caller knows them, 2 the channel of that queue, 3 the place of the other
--       queue's first key in KEYS, 0 if it is the same queue, 4 the key that is held, 5 its claim, 6 the
--       successor's key, 7 its value, 8 its time in microseconds or 0.
-- Returns {1}, {0} if there is no such queue, {2, levels} if the queue has others, {4} if the message is not held under that
-- claim.
local meta = redis.call('HMGET', K[1], 'levels', 'idle')
if not meta[1] then return {0} end
if meta[1] ~= ARGV[1] then return {2, meta[1]} end
local other = tonumber(ARGV[3])
if other > 0 then
  K = {}
  for i = 1, 10 do K[i] = KEYS[other + i - 1] end
end
local ours = held({ARGV[4]}, {ARGV[5]})[1]
if ours then
  redis.call('HDEL', K[4], ARGV[4])
  forget({ARGV[4]}) -- first, or a successor of the same key would be no news
end
K = KEYS
if not ours then return {4} end
add(meta, ARGV[2], 1, {ARGV[6], ARGV[7]}, ARGV[8] ~= '0' and {ARGV[8]} or {})
return {1}

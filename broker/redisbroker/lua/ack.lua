#!lua flags=allow-oom
-- Removes acknowledged messages.
-- KEYS: t l n g -- of plain queues
-- KEYS: m t l n g -- of fair queues
-- ARGV: the keys, then the claims that hold them, in the same order.
-- Returns 1 if all were removed. Otherwise returns a text with a 1 for each removed message, and a
-- 0 for each that is not held under its claim.
local count = #ARGV / 2
local under = redis.call('HMGET', K.l, unpack(ARGV, 1, count))
local gone = {}
for i = 1, count do
  if under[i] == ARGV[count + i] then gone[#gone + 1] = ARGV[i] end
end
if #gone > 0 then
  redis.call('HDEL', K.l, unpack(gone))
  places(string.sub(K.m, 1, -2), K.t, gone) -- of fair queues
  forget(K.t, K.n, K.g, gone)
end
if #gone == count then return 1 end
local answer = {}
for i = 1, count do answer[i] = under[i] == ARGV[count + i] and '1' or '0' end
return table.concat(answer)

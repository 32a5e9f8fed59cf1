#!lua flags=allow-oom
-- Removes messages that are done.
-- KEYS: t l n g
-- ARGV: the keys, then the claims under which they are held, in the same order.
-- Returns 1 if all were removed, else a string with one character for each key: 1 removed, 0 not held under that claim.
local count = #ARGV / 2
local under = redis.call('HMGET', K.l, unpack(ARGV, 1, count))
local gone = {}
for i = 1, count do
  if under[i] == ARGV[count + i] then gone[#gone + 1] = ARGV[i] end
end
if #gone > 0 then
  redis.call('HDEL', K.l, unpack(gone))
  forget(K.t, K.n, K.g, gone)
end
if #gone == count then return 1 end
local answer = {}
for i = 1, count do answer[i] = under[i] == ARGV[count + i] and '1' or '0' end
return table.concat(answer)

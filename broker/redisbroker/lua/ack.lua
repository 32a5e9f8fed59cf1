#!lua flags=allow-oom
-- Removes messages that are done.
-- ARGV: the keys, then the numbers of the claims under which they are held, in the same order.
-- Returns a string with one character for each key: 1 removed, 0 not held under that claim.
local count = #ARGV / 2
local keys, numbers = {}, {}
for i = 1, count do
  keys[i] = ARGV[i]
  numbers[i] = ARGV[count + i]
end
local ours = held(keys, numbers)
local gone, answer = {}, {}
for i = 1, count do
  answer[i] = ours[i] and '1' or '0'
  if ours[i] then gone[#gone + 1] = keys[i] end
end
if #gone > 0 then
  redis.call('ZREM', K[4], unpack(gone))
  forget(gone)
end
return table.concat(answer)

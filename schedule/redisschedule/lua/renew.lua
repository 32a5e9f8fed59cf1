#!lua flags=allow-oom
-- Has claims last from now on.
-- KEYS: next
-- ARGV: the lease in milliseconds; the time in milliseconds, or '' for the server's; then the members of the claims
-- Returns a string with one character for each claim: 1 renewed, 0 not held any more.
local now = tonumber(ARGV[2])
if not now then
  local time = redis.call('TIME')
  now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
end
local till = string.format('%.0f', now + tonumber(ARGV[1]))
local answer = {}
for i = 3, #ARGV do
  local held = redis.call('ZSCORE', KEYS[1], ARGV[i]) and '1' or '0'
  if held == '1' then redis.call('ZADD', KEYS[1], till, ARGV[i]) end
  answer[#answer + 1] = held
end
return table.concat(answer)

#!lua flags=allow-oom
-- Renews claims: their leases begin now.
-- KEYS: next, and next of our own layout
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
  local held = '0'
  for _, next in ipairs(KEYS) do
    if redis.call('ZSCORE', next, ARGV[i]) then
      redis.call('ZADD', next, till, ARGV[i])
      held = '1'
      break
    end
  end
  answer[#answer + 1] = held
end
return table.concat(answer)

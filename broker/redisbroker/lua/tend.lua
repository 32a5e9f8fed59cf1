#!lua flags=allow-oom
-- Renews the leases of owners in several queues, and checks which of the queues have something to
-- claim: ready messages, due ones, or ended leases. A fairness key is due when its rate allows it.
-- KEYS: of each queue: d, o, its ready lists and its sets of fairness keys, and p if it is fair.
-- ARGV: for each queue: 1 the number of these lists and sets, 2 the owner, 3 the time in microseconds by
-- which to renew the lease, 0: no renewal, 4 the number of the keys p.
-- Returns a text with one character for each queue: 0 nothing to claim, 1 something to claim, 2 the
-- owner's lease has ended.
local now, place, answer = clock(), 1, {}
for i = 1, #ARGV, 4 do
  local due, owners, last = KEYS[place], KEYS[place + 1], place + 1 + ARGV[i]
  local till = redis.call('ZSCORE', owners, ARGV[i + 1])
  if not till or tonumber(till) <= now then
    answer[#answer + 1] = '2'
  else
    if ARGV[i + 2] ~= '0' then redis.call('ZADD', owners, 'XX', now + ARGV[i + 2], ARGV[i + 1]) end
    local first = redis.call('ZRANGE', owners, 0, 0, 'WITHSCORES')[2]
    local next = redis.call('ZRANGE', due, 0, 0, 'WITHSCORES')[2] or math.huge
    if ARGV[i + 3] == '1' then next = math.min(next, redis.call('ZRANGE', KEYS[last + 1], 0, 0, 'WITHSCORES')[2] or math.huge) end
    local is = tonumber(first) <= now or tonumber(next) <= now or redis.call('EXISTS', unpack(KEYS, place + 2, last)) > 0
    answer[#answer + 1] = is and '1' or '0'
  end
  place = last + 1 + ARGV[i + 3]
end
return table.concat(answer)

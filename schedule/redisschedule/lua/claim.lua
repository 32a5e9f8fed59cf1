-- Claims ticks: each, if its member is as it was found, is replaced by a claim, and the entry gets its next time in the same step.
-- KEYS: jobs, next, swarmiji, and jobs and next of the own layout
-- ARGV: the lease in milliseconds; the time in milliseconds, or '' for the server's; then for each tick: the id, the member that was
-- found, its score, the member of the entry itself, the member of the claim, the tick's instant, the entry's next time or '', 1 if
-- the member that was found is a claim, 1 if the instant is to be remembered
-- Returns a string with one character for each tick: 1 claimed, perhaps by an earlier call, 0 not.
local now = tonumber(ARGV[2])
if not now then
  local time = redis.call('TIME')
  now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
end

-- with adds an instant to those of the last runs, of which it keeps the newest five.
local function with(due, runs)
  local list, texts = { tonumber(due) }, {}
  for one in string.gmatch(runs or '', '%-?%d+') do
    if tonumber(one) ~= list[1] then list[#list + 1] = tonumber(one) end
  end
  table.sort(list, function(a, b) return a > b end)
  for i = 1, math.min(#list, 5) do texts[i] = string.format('%.0f', list[i]) end
  return table.concat(texts, ' ')
end

local till = string.format('%.0f', now + tonumber(ARGV[1]))
local answer = {}
for i = 3, #ARGV, 9 do
  local id, member, score, entry, claim = ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3], ARGV[i + 4]
  local due, next_, again, remember = ARGV[i + 5], ARGV[i + 6], ARGV[i + 7], ARGV[i + 8]
  local jobs, next = layout_of(id)
  local won = '0'
  if redis.call('HEXISTS', jobs, id) == 0 then
    won = '0'
  elseif redis.call('ZSCORE', next, claim) then
    redis.call('ZADD', next, till, claim)
    won = '1'
  elseif redis.call('ZSCORE', next, member) == score then
    redis.call('ZREM', next, member)
    if next_ ~= '' and redis.call('HEXISTS', KEYS[3], 'paused:' .. id) == 0 then
      if again == '1' then
        redis.call('ZADD', next, 'NX', next_, entry)
      else
        redis.call('ZADD', next, next_, entry)
      end
    end
    redis.call('ZADD', next, till, claim)
    if remember == '1' then
      redis.call('HSET', KEYS[3], 'last:' .. id, due, 'runs:' .. id, with(due, redis.call('HGET', KEYS[3], 'runs:' .. id)))
    end
    won = '1'
  end
  answer[#answer + 1] = won
end
return table.concat(answer)

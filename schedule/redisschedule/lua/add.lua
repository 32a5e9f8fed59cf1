-- Adds entries that are not there, each with its place in the order of time: never one without the other.
-- KEYS: jobs and next, of the layout that the entries go to; swarmiji; jobs of the other layout
-- ARGV: for each entry its id, its payload, its member of next, its time in milliseconds, 1 if it
-- is due at once and goes behind those that were added so before it
-- Returns a string with one character for each entry: 1 added, 0 there before, 2 there before
-- without its member and not paused; then nothing was changed.

-- behind returns the millisecond behind the last entry of a second that waits. They are claimed in
-- this order, so that none is passed over. The last millisecond is for all that are too many.
local function behind(time)
  local last = time - time % 1000 + 999
  for from = 0, 90, 10 do
    local found = redis.call('ZREVRANGEBYSCORE', KEYS[2], last, time, 'WITHSCORES', 'LIMIT', from, 10)
    for i = 1, #found, 2 do
      if string.find(found[i], '^{"id":"%x+"}$') then return math.min(math.floor(tonumber(found[i + 1])) + 1, last) end
    end
    if #found < 20 then break end
  end
  return time
end

local answer = {}
for i = 1, #ARGV, 5 do
  local id, member, time = ARGV[i], ARGV[i + 2], ARGV[i + 3]
  local new = 0
  if redis.call('HEXISTS', KEYS[4], id) == 0 then new = redis.call('HSETNX', KEYS[1], id, ARGV[i + 1]) end
  if new == 1 then
    if ARGV[i + 4] == '1' then time = string.format('%.0f', behind(tonumber(time))) end
    redis.call('ZADD', KEYS[2], time, member)
  elseif redis.call('HEXISTS', KEYS[1], id) == 1 and not redis.call('ZSCORE', KEYS[2], member) and redis.call('HEXISTS', KEYS[3], 'paused:' .. id) == 0 then
    new = 2
  end
  answer[#answer + 1] = new
end
return table.concat(answer)

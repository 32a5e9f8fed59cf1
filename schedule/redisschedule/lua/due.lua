-- Shows what is due, and changes nothing.
-- KEYS: jobs, next, swarmiji
-- ARGV: how many at most; the time in milliseconds, or '' for the server's; how many bytes of payloads at most
-- Returns the time; the score of the next member that is not due, or ''; 1 if there is more that is due, else 0; then for each member
-- that is due, in the order of scores: the member, its score, its id or '' if it is no JSON with one, the payload or nil, and of
-- the hash swarmiji the state and the last instant, or nil.
local now = ARGV[2]
if now == '' then
  local time = redis.call('TIME')
  now = string.format('%.0f', tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000))
end
local later = redis.call('ZRANGEBYSCORE', KEYS[2], '(' .. now, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
local most, room = tonumber(ARGV[1]), tonumber(ARGV[3])
local answer = { now, later[2] or '', 0 }
if most == 0 then return answer end
local found = redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', now, 'WITHSCORES', 'LIMIT', 0, most)
local more = redis.call('EXISTS', KEYS[3]) == 1
for i = 1, #found, 2 do
  local member = found[i]
  local id = string.match(member, '^{"id":"(%x+)"[,}]')
  if not id then
    local ok, value = pcall(cjson.decode, member)
    id = ok and type(value) == 'table' and type(value.id) == 'string' and value.id or ''
  end
  local payload = redis.call('HGET', KEYS[1], id)
  if payload then
    room = room - #payload
    if room < 0 and i > 1 then
      answer[3] = 1
      break
    end
  end
  local state, last = false, false
  if more then
    local kept = redis.call('HMGET', KEYS[3], 'state:' .. id, 'last:' .. id)
    state, last = kept[1], kept[2]
  end
  local n = #answer
  answer[n + 1], answer[n + 2], answer[n + 3] = member, found[i + 1], id
  answer[n + 4], answer[n + 5], answer[n + 6] = payload, state, last
end
return answer

-- Returns due members, and changes nothing.
-- KEYS: jobs, next, swarmiji, and jobs and next of the own layout
-- ARGV: how many at most; the time in milliseconds, or '' for the server's; how many bytes of payloads at most
-- Returns the time; the score of the next member that is not due, or ''; 1 if there is more that is due, else 0; then for each member
-- that is due, in the order of scores: the member, its score, its id or '' if it is no JSON with one, the payload or nil, and of
-- the hash swarmiji the state, the last instant, those of the last runs, the group and the version, or nil; then the score of the
-- entry's own member, or nil.
local now = ARGV[2]
if now == '' then
  local time = redis.call('TIME')
  now = string.format('%.0f', tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000))
end
local own = redis.call('EXISTS', KEYS[5]) == 1

-- later returns the score of the first member that is not due.
local function later(next)
  return redis.call('ZRANGEBYSCORE', next, '(' .. now, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)[2]
end

local first = later(KEYS[2])
if own then
  local other = later(KEYS[5])
  if other and (not first or tonumber(other) < tonumber(first)) then first = other end
end
local most, room = tonumber(ARGV[1]), tonumber(ARGV[3])
local answer = { now, first or '', 0 }
if most == 0 then return answer end

local function found(next) return redis.call('ZRANGEBYSCORE', next, '-inf', now, 'WITHSCORES', 'LIMIT', 0, most) end

local ours = own and found(KEYS[5]) or {}
local theirs = found(KEYS[2])
local more = redis.call('EXISTS', KEYS[3]) == 1
local i, j = 1, 1
for n = 1, most do
  local list, at, jobs = theirs, i, KEYS[1]
  if ours[j] and (not theirs[i] or tonumber(ours[j + 1]) < tonumber(theirs[i + 1])) then
    list, at, jobs = ours, j, KEYS[4]
    j = j + 2
  elseif theirs[i] then
    i = i + 2
  else
    break
  end
  local member = list[at]
  local id = string.match(member, '^{"id":"(%x+)"[,}]')
  if not id then
    local ok, value = pcall(cjson.decode, member)
    id = ok and type(value) == 'table' and type(value.id) == 'string' and value.id or ''
  end
  local payload, own_score = redis.call('HGET', jobs, id), list[at + 1]
  local head = string.match(member, '^(.*),"due":%-?%d+,"by":".*"}$')
  if head then own_score = redis.call('ZSCORE', jobs == KEYS[4] and KEYS[5] or KEYS[2], head .. '}') end
  if payload then
    room = room - #payload
    if room < 0 and n > 1 then
      answer[3] = 1
      break
    end
  end
  local kept = { false, false, false, false, false }
  if more then
    kept = redis.call('HMGET', KEYS[3], 'state:' .. id, 'last:' .. id, 'runs:' .. id, 'group:' .. id, 'version:' .. id)
  end
  local k = #answer
  answer[k + 1], answer[k + 2], answer[k + 3] = member, list[at + 1], id
  answer[k + 4] = payload
  for n = 1, 5 do answer[k + 4 + n] = kept[n] end
  answer[k + 10] = own_score
end
return answer

-- Stores records and notifies their submitters. A record is refused if a newer or a final one is
-- stored. A requeued record of a newer generation replaces a failed or expired one.
--
-- KEYS[i]          key of record i of n; on a Redis Cluster each call has one record
-- KEYS[n+j]        key of checkpoints to delete
-- ARGV[4*i-3]      its value: "<generation>.<deliveries> <state> <end>\n" and the record; <end> is
--                  "final" or "open"
-- ARGV[4*i-2]      its time to live in milliseconds
-- ARGV[4*i-1]      channel of its notification, "" for no notification
-- ARGV[4*i]        message of the notification, "" for the value
-- ARGV[4*n+j]      the record i with which KEYS[n+j] is deleted, unless it is refused
-- returns          for each record: 1 stored, 0 the same final record was stored already, -1 refused
--                  as stale, -2 the key holds a value that is not a record
--
-- Running it again with the same arguments changes only the time to live of an open record.

local HEAD = '^(%d+)%.(%d+) (%l+) (%l+)\n'

-- checkToken returns the answer for a value; old is the first line of the stored value.
local function checkToken(old, value)
  local g1, d1, state1, end1 = string.match(old, HEAD)
  if not g1 then
    return -2
  end
  local g2, d2, state2 = string.match(value, HEAD)
  local generation = tonumber(g2) - tonumber(g1)
  local newer = generation
  if generation == 0 then
    newer = tonumber(d2) - tonumber(d1)
  end
  if newer < 0 then
    return -1
  end
  if end1 == 'open' then
    return 1
  end
  if generation > 0 and state2 == 'requeued' and (state1 == 'failed' or state1 == 'expired') then
    return 1
  end
  if newer == 0 and state1 == state2 then
    return 0
  end
  return -1
end

local answers = {}
local n = (#ARGV - #KEYS) / 3
for i = 1, n do
  local key = KEYS[i]
  local value, ttl, channel, note = ARGV[4 * i - 3], ARGV[4 * i - 2], ARGV[4 * i - 1], ARGV[4 * i]
  local answer = 1
  if not redis.call('SET', key, value, 'PX', ttl, 'NX') then -- for most tasks this is the only record
    local old = redis.pcall('GETRANGE', key, 0, 95) -- longer than the first line
    if type(old) ~= 'table' then
      answer = checkToken(old, value)
    elseif string.find(old.err, 'WRONGTYPE', 1, true) then
      answer = -2
    else
      return old
    end
    if answer == 1 then
      redis.call('SET', key, value, 'PX', ttl)
    end
  end
  if answer == 1 and channel ~= '' then
    if note == '' then
      note = value
    end
    redis.call('PUBLISH', channel, note)
  end
  answers[i] = answer
end
for j = n + 1, #KEYS do
  if answers[tonumber(ARGV[3 * n + j])] >= 0 then
    redis.call('DEL', KEYS[j])
  end
end
return answers

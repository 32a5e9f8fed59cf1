-- Publishes a message of events and, if asked to, keeps it for late listeners.
--
-- KEYS[1]  stream of kept messages; it makes a Redis Cluster run this script on one node, so that
--          messages of one publisher stay in order
-- ARGV[1]  channel
-- ARGV[2]  message for the channel
-- ARGV[3]  channel for the id of the new stream entry
-- ARGV[4]  message to keep: "" for none, "=" for ARGV[2]
-- ARGV[5]  number of events in the message to keep
-- ARGV[6]  number of newest events that must be kept
-- ARGV[7]  milliseconds for which messages must be kept
-- returns  1 published, and kept if asked to; 0 published, but the server accepts no data now
--
-- A refusal before the message was published is an error, so that the caller may repeat the call. A
-- stream entry has the fields s, the number of events kept so far including this entry, and e, the
-- message.

-- Most removals for each added entry: more than one, so that a smaller limit takes effect, and few, so
-- that the script is short.
local MOST = 8

local function total(entry)
  return entry and tonumber(entry[2][2]) or 0
end

-- keep adds an entry and removes old ones. It returns the id of the new entry, or the server's refusal.
local function keep(stream, message, n, limit, age)
  local last = redis.call('XREVRANGE', stream, '+', '-', 'COUNT', 1)[1]
  local sum = total(last) + n
  local id = redis.pcall('XADD', stream, '*', 's', string.format('%.0f', sum), 'e', message)
  if type(id) == 'table' and id.err then
    return nil, id
  end
  redis.call('PEXPIRE', stream, age)
  local now = tonumber(string.match(id, '^%d+'))
  for _ = 1, MOST do
    local first = redis.call('XRANGE', stream, '-', '+', 'COUNT', 1)[1]
    if sum - total(first) < limit and now - tonumber(string.match(first[1], '^%d+')) <= age then
      break
    end
    redis.call('XDEL', stream, first[1])
  end
  return id
end

local message, kept = ARGV[2], ARGV[4]
if kept == '=' then
  kept = message
end
local id, refusal
if kept ~= '' then
  id, refusal = keep(KEYS[1], kept, tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7]))
  -- Out of memory or unable to write its files: listeners still receive the events.
  if refusal and not string.find(refusal.err, 'OOM', 1, true) and not string.find(refusal.err, 'MISCONF', 1, true) then
    return refusal
  end
end
redis.call('PUBLISH', ARGV[1], message)
if id then
  redis.call('PUBLISH', ARGV[3], id)
end
return refusal and 0 or 1

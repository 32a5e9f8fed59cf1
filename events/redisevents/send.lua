-- Publishes a message of events and, where it is asked to, keeps it for late listeners.
--
-- KEYS[1]  stream of kept messages; also what makes a Redis Cluster run this on one node, so that messages of one
--          publisher stay in their order
-- ARGV[1]  channel
-- ARGV[2]  message for it
-- ARGV[3]  channel to tell the id of what was kept on
-- ARGV[4]  message to keep: "" none, "=" the same
-- ARGV[5]  number of events in that
-- ARGV[6]  number of newest events that have to stay
-- ARGV[7]  milliseconds for which messages have to stay
-- returns  1 published, and kept if asked to; 0 published, but the server takes no data now
--
-- A refusal before anything was published is an error, so that it may be tried again. What was kept is a stream's entry
-- with the fields s, the number of events kept so far with this entry, and e, the message.

-- Removals for each entry that is added: more than one, so that a smaller limit takes hold in time, and few, so that
-- nobody waits.
local MOST = 8

local function total(entry)
  return entry and tonumber(entry[2][2]) or 0
end

-- keep returns the id of the new entry, or the server's refusal.
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
  -- Out of memory or unable to write its files: listeners hear of the events all the same.
  if refusal and not string.find(refusal.err, 'OOM', 1, true) and not string.find(refusal.err, 'MISCONF', 1, true) then
    return refusal
  end
end
redis.call('PUBLISH', ARGV[1], message)
if id then
  redis.call('PUBLISH', ARGV[3], id)
end
return refusal and 0 or 1

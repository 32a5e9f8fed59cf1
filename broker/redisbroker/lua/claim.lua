#!lua flags=allow-oom
-- Hands messages to an owner. First it puts back what owners held whose leases have ended, and makes ready what is due; of
-- each at most a few hundred for each call. A claim that is repeated, since its answer was lost, gives the same again.
-- ARGV: 1 the levels as the caller knows them, 2 the channel, 3 the owner, 4 the claim's place among the owner's, 5 how many
--       at most, 6 the lease in microseconds, 7 about how many bytes at most, 8 how many messages to look at first, 9 the places
--       of the owner's claims of which something is held, separated by commas, 10 and following: the names of earlier claims
--       of which nothing is held any more.
-- Returns {1, microseconds until a message is due or -1, microseconds the lease has left, 1 if there may be more now,
--          "place:count " of each message that was handed out before, key, value, key, value, ...}, {0} if there is no such
--          queue, {2, levels} if the queue has others, {3} if the owner's lease has ended.
local meta = redis.call('HMGET', K[1], 'levels', 'idle', 'ghosts')
if not meta[1] then return {0} end
if meta[1] ~= ARGV[1] then return {2, meta[1]} end
local now = clock()
local owner, lease = ARGV[3], tonumber(ARGV[6])
local till = tonumber(redis.call('ZSCORE', K[5], owner) or 0)
if till <= now then return {3} end
if till - now < lease * 2 / 3 then
  till = now + lease
  redis.call('ZADD', K[5], till, owner)
end
if ARGV[10] then redis.call('HDEL', K[6], unpack(ARGV, 10)) end
local claim = owner .. '.' .. ARGV[4]
local out = {1, -1, till - now, 0, ''}
local keys, size = {}, 5

local last = tonumber(string.match(redis.call('HGET', K[6], owner) or '0', '^%d+'))
if tonumber(ARGV[4]) <= last then -- said before
  if tonumber(ARGV[4]) == last then
    keys = claimed(claim)
    if #keys > 0 then
      local values = redis.call('HMGET', K[2], unpack(keys))
      for i = 1, #keys do
        out[size + 1] = keys[i]
        out[size + 2] = values[i] or ''
        size = size + 2
      end
    end
  end
  out[4] = 1
else
  local list = bounds(meta[1])
  local moved, more = false, false
  -- Owners whose leases have ended.
  local dead = redis.call('ZRANGEBYSCORE', K[5], '-inf', now, 'LIMIT', 0, 1)
  if dead[1] then
    local count
    count, more = reclaim(list, dead[1], true)
    moved = count > 0
  end
  -- What is due.
  local due = redis.call('ZRANGEBYSCORE', K[3], '-inf', now, 'LIMIT', 0, 500)
  if #due > 0 then
    redis.call('ZREM', K[3], unpack(due))
    put(list, due, false)
    moved = true
    more = more or #due == 500
  end
  -- What is ready.
  local want, budget, look = tonumber(ARGV[5]), tonumber(ARGV[7]), tonumber(ARGV[8])
  local places = math.max(1, #list)
  local place, count = 1, 0
  local holds = {}
  while place <= places and want > 0 and budget > 0 do
    local got = redis.call('LPOP', K[10 + place], math.min(look, want))
    if not got then
      place = place + 1
    else
      local values = redis.call('HMGET', K[2], unpack(got))
      for i = 1, #got do
        local key, value = got[i], values[i]
        if budget <= 0 then -- too much for one answer: back with the rest
          local rest = {}
          for k = #got, i, -1 do rest[#rest + 1] = got[k] end
          redis.call('LPUSH', K[10 + place], unpack(rest))
          break
        end
        if not value and string.byte(key, 1) == 123 then -- '{': a JSON task that somebody pushed; it gets an id
          local seq = redis.call('HINCRBY', K[1], 'foreign', 1)
          value = key
          key = 'j' .. redis.sha1hex(K[1] .. ' ' .. string.format('%.0f', now) .. ' ' .. seq)
          redis.call('HSET', K[2], key, value)
        elseif meta[3] and passed(place, key) then
          value = false
        end
        if value then
          count = count + 1
          keys[count] = key
          holds[2 * count - 1] = key
          holds[2 * count] = claim
          out[size + 1] = key
          out[size + 2] = value
          size = size + 2
          budget = budget - #value
          want = want - 1
        end
      end
      look = math.min(look * 4, 250)
    end
  end
  if count > 0 then
    redis.call('HSET', K[4], unpack(holds))
    redis.call('HSET', K[6], claim, table.concat(keys, '\n'), owner, ARGV[4] .. ':' .. ARGV[9] .. ',' .. ARGV[4])
  end
  if place <= places and not more then -- it takes all that it wants: is that all there is?
    more = redis.call('EXISTS', unpack(K, 11)) > 0
  end
  if more then
    out[4] = 1
    if moved then wake(meta[2], ARGV[2]) end -- more was put there than this caller takes
  elseif not meta[2] then
    redis.call('HSET', K[1], 'idle', 1)
  end
end

if #keys > 0 and redis.call('EXISTS', K[7]) == 1 then
  local again = {}
  local counts = redis.call('HMGET', K[7], unpack(keys))
  for i = 1, #counts do
    if counts[i] then again[#again + 1] = (i - 1) .. ':' .. counts[i] end
  end
  out[5] = table.concat(again, ' ')
end
local next = redis.call('ZRANGE', K[3], 0, 0, 'WITHSCORES')
if next[2] then out[2] = math.max(0, math.ceil(next[2] - now)) end
return out

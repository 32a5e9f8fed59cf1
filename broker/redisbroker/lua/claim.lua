#!lua flags=allow-oom
-- Hands messages to an owner. First it puts back what an owner held whose lease has ended, and makes ready what is due; of
-- each at most a few hundred for each call. A claim that is repeated, since its answer was lost, gives the same again.
-- KEYS: m t d l o c n s r
-- ARGV: 1 the levels as the caller knows them, 2 the channel, 3 the owner, 4 the claim's place among the owner's, 5 how many
--       at most, 6 microseconds by which to renew the lease, 0: not, 7 about how many bytes at most, 8 how many messages to
--       look at first, 9 the places of the owner's claims of which something is held, separated by commas, 10 and following:
--       the names of earlier claims of which nothing is held any more.
-- Returns {1, microseconds until a message is due or -1, 1 if there may be more now, "place:count " of each message that was
--          handed out before, key, value, key, value, ...}, {0} if there is no such queue, {2, levels} if the queue has others,
--          {3} if the owner's lease has ended.
local meta = redis.call('HMGET', K.m, 'levels', 'idle', 'ghosts')
if not meta[1] then return {0} end
if meta[1] ~= ARGV[1] then return {2, meta[1]} end
local owner = ARGV[3]
local record = redis.call('HGET', K.c, owner)
if not record then return {3} end
local now = clock()
local first = redis.call('ZRANGE', K.o, 0, 0, 'WITHSCORES') -- whose lease ends first
local dead = first[2] and tonumber(first[2]) <= now
if dead then
  local till = redis.call('ZSCORE', K.o, owner)
  if not till or tonumber(till) <= now then return {3} end
end
if ARGV[6] ~= '0' then redis.call('ZADD', K.o, 'XX', now + ARGV[6], owner) end
if ARGV[10] then redis.call('HDEL', K.c, unpack(ARGV, 10)) end
local claim = owner .. '.' .. ARGV[4]
local out = {1, -1, 0, ''}
local size = 4

local last = tonumber(string.match(record, '^%d+'))
if tonumber(ARGV[4]) <= last then -- said before
  if tonumber(ARGV[4]) == last then
    local keys = claimed(claim)
    if #keys > 0 then
      local values = redis.call('HMGET', K.t, unpack(keys))
      local counts = redis.call('HMGET', K.n, unpack(keys))
      for i = 1, #keys do
        out[size + 1] = keys[i]
        out[size + 2] = values[i] or ''
        size = size + 2
        if counts[i] then out[4] = out[4] .. (i - 1) .. ':' .. counts[i] .. ' ' end
      end
    end
  end
  out[3] = 1
  return out
end

local list = bounds(meta[1])
local moved, more = false, false
if dead then
  local count
  count, more = reclaim(list, first[1], true)
  moved = count > 0
end
local next = redis.call('ZRANGE', K.d, 0, 0, 'WITHSCORES')
if next[2] and tonumber(next[2]) <= now then
  local due = redis.call('ZRANGEBYSCORE', K.d, '-inf', now, 'LIMIT', 0, 500)
  redis.call('ZREM', K.d, unpack(due))
  put(list, due, false)
  moved = true
  more = more or #due == 500
  next = redis.call('ZRANGE', K.d, 0, 0, 'WITHSCORES')
end
if next[2] then out[2] = math.max(0, math.ceil(next[2] - now)) end

local want, budget, look = tonumber(ARGV[5]), tonumber(ARGV[7]), tonumber(ARGV[8])
local places = math.max(1, #list)
local place, count = 1, 0
local keys, holds = {}, {}
while place <= places and want > 0 and budget > 0 do
  local got = redis.call('LPOP', K.r(place), math.min(look, want))
  if not got then
    place = place + 1
  else
    local values = redis.call('HMGET', K.t, unpack(got))
    for i = 1, #got do
      local key, value = got[i], values[i]
      if budget <= 0 then -- too much for one answer: back with the rest
        local rest = {}
        for k = #got, i, -1 do rest[#rest + 1] = got[k] end
        redis.call('LPUSH', K.r(place), unpack(rest))
        break
      end
      if not value and string.byte(key, 1) == 123 then -- '{': a JSON task that somebody pushed; it gets an id
        local seq = redis.call('HINCRBY', K.m, 'foreign', 1)
        value = key
        key = 'j' .. redis.sha1hex(K.m .. ' ' .. string.format('%.0f', now) .. ' ' .. seq)
        redis.call('HSET', K.t, key, value)
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
  redis.call('HSET', K.l, unpack(holds))
  redis.call('HSET', K.c, claim, table.concat(keys, '\n'), owner, ARGV[4] .. ':' .. ARGV[9] .. ',' .. ARGV[4])
end
-- Are there counts, or, if all was given that was wanted, is there more?
if count > 0 and redis.call('EXISTS', K.n, K.r()) > 0 then
  if redis.call('EXISTS', K.n) == 1 then
    local again = {}
    local counts = redis.call('HMGET', K.n, unpack(keys))
    for i = 1, #counts do
      if counts[i] then again[#again + 1] = (i - 1) .. ':' .. counts[i] end
    end
    out[4] = table.concat(again, ' ')
  end
  more = more or redis.call('EXISTS', K.r()) > 0
end
if more then
  out[3] = 1
  if moved then wake(meta[2], ARGV[2]) end -- more was put there than this caller takes
elseif not meta[2] then
  redis.call('HSET', K.m, 'idle', 1)
end
return out

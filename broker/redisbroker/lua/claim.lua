#!lua flags=allow-oom
-- Hands messages to an owner. First it puts back what owners held whose leases have ended, and
-- makes ready what is due; of each at most a few hundred for each call. A claim that is repeated,
-- since its answer was lost, gives the same again; so does one for which something was handed over
-- already. An owner that gets less than it wants is noted as one that waits.
-- KEYS: m t d l o c n s h r
-- ARGV: 1 the levels as the caller knows them, 2 the channels but for the owner, 3 the owner, 4 the claim's place among the
--       owner's, 5 how many at most, 6 microseconds by which to renew the lease, 0: not, 7 about how many bytes at most, 8 how
--       many messages to look at first, 9 the places of the owner's claims of which something may be held, separated by
--       commas, 10 what the owner hears: c content, n words, or nothing if it is empty.
-- Returns {1, microseconds until a message is due or -1, 0 if it is noted as one that waits, 1 if not, 2 if this was answered
--          before or handed over, "place:count " of each message that was handed out before, key, value, key, value, ...},
--          {0} if there is no such queue, {2, levels} if the queue has others, {3} if the owner's lease has ended.
local levels = redis.call('HGET', K.m, 'levels')
if not levels then return {0} end
if levels ~= ARGV[1] then return {2, levels} end
local owner = ARGV[3]
local record = redis.call('HGET', K.c, owner)
if not record then return {3} end
local now = clock()
-- expired returns an owner whose lease has ended, or nil.
local function expired()
  local first = redis.call('ZRANGE', K.o, 0, 0, 'WITHSCORES')
  return first[2] and tonumber(first[2]) <= now and first[1] or nil
end
local dead = expired()
if dead then
  local till = redis.call('ZSCORE', K.o, owner)
  if not till or tonumber(till) <= now then return {3} end
end
if ARGV[6] ~= '0' then redis.call('ZADD', K.o, 'XX', now + ARGV[6], owner) end

local list = bounds(levels)
local recorded = string.match(record, '^%d+:%d+:%a:(.*)$')
local moved = recorded ~= ARGV[9] and settle(list, owner, recorded, ARGV[9], ARGV[4])
local last = string.match(record, '^%d+')
if tonumber(ARGV[4]) <= tonumber(last) then -- said before
  local out = {1, -1, 2, ''}
  local keys = claimed(owner .. '.' .. ARGV[4])
  if #keys > 0 then
    local values = redis.call('HMGET', K.t, unpack(keys))
    out[4] = counts(keys)
    for i = 1, #keys do
      out[#out + 1] = keys[i]
      out[#out + 1] = values[i] or ''
    end
  end
  return out
end

local more, back, owners = false, 0, 0
while dead do
  local count
  count, more = reclaim(list, dead, true)
  back, owners = back + count, owners + 1
  dead = expired()
  if back >= 200 or owners == 100 then
    more = more or dead ~= nil
    break
  end
end
moved = moved or back > 0
local wait = -1
local next = redis.call('ZRANGE', K.d, 0, 0, 'WITHSCORES')
if next[2] and tonumber(next[2]) <= now then
  local due = redis.call('ZRANGEBYSCORE', K.d, '-inf', now, 'LIMIT', 0, 500)
  redis.call('ZREM', K.d, unpack(due))
  put(list, due, false)
  moved = true
  more = more or #due == 500
  next = redis.call('ZRANGE', K.d, 0, 0, 'WITHSCORES')
end
if next[2] then wait = math.max(0, math.ceil(next[2] - now)) end

local want = tonumber(ARGV[5])
local keys, out = take(list, want, tonumber(ARGV[7]), tonumber(ARGV[8]), 4)
local count = #keys
if count > 0 then out[4] = counts(keys) end
if count == want then more = true end -- it asks again when it has room
local mode = ARGV[10] == '' and 'n' or ARGV[10]
if count > 0 then
  hold(owner, ARGV[4], keys, want - count, mode, ARGV[9])
end
if not more and count < want and ARGV[10] ~= '' then
  if count == 0 then
    local is = last .. ':' .. want .. ':' .. mode .. ':' .. ARGV[9]
    if is ~= record then redis.call('HSET', K.c, owner, is) end
  end
  redis.call('ZADD', K.h, 'NX', now, owner)
else
  redis.call('ZREM', K.h, owner)
  if more and moved then hand(list, ARGV[2]) end -- perhaps more was made ready than this caller takes
end
out[1], out[2], out[3] = 1, wait, more and 1 or 0
return out

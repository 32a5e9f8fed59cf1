#!lua flags=allow-oom
-- Claims ready messages for an owner. Before that it takes back the messages of owners whose leases
-- have ended, and makes delayed messages ready that are due, a few hundred with each call.
--
-- If the claim was made before, it returns the same messages again, and claims none. That is so if
-- its answer was lost, or if the server has delivered messages as that claim. An owner that gets
-- fewer messages than it wants is then a waiting owner: it gets later messages on its channel.
-- KEYS: m t d l o c n s h a r
-- ARGV: in this order:
--   1   the levels as the caller knows them
--   2   the common beginning of the owners' channels
--   3   the owner
--   4   the claim's number among the owner's claims
--   5   the maximum number of messages
--   6   the time in microseconds by which to renew the lease, 0: no renewal
--   7   the approximate maximum of bytes
--   8   how many messages to read first
--   9   the numbers of the owner's claims under which it may hold messages, with commas
--   10  the mode: c if the owner receives messages on its channel, n for notifications, '' for
--       neither
--   11  how many of the messages begin at less urgent levels
--   12  where the rotation of these levels begins, see passes in lib.lua
--   13  the bounds as ../bounds.go packs them, '' if there are none -- of fair queues
-- Returns one of these:
--   - {1, microseconds until a message is due or -1, status, counts, key, value, key, value, ...}.
--     status is 0 if the owner waits now, 1 if it does not, 2 if this claim was made before. counts
--     is "index:count" of each message that was delivered before.
--   - {0} if the queue does not exist
--   - {2, levels} if the queue has other levels
--   - {3} if the owner's lease has ended
local levels = redis.call('HGET', K.m, 'levels') -- of plain queues
local levels, counted = unpack(redis.call('HMGET', K.m, 'levels', 'counted')) -- of fair queues
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
if tonumber(ARGV[4]) <= tonumber(last) then -- this claim was made before
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
local allowed = want
if ARGV[13] ~= '' or counted then allowed = limits(list, ARGV[13], want, now, counted, last == '0') end -- of fair queues
local keys, out, early = take(list, allowed, tonumber(ARGV[7]), tonumber(ARGV[8]), 4, tonumber(ARGV[11]), tonumber(ARGV[12]))
local count = #keys
more = more or early == true
local free = list.limits and charge(list, count, count < allowed and not early) -- of fair queues
if free and (wait < 0 or free - now < wait) then wait = math.max(0, free - now) end -- of fair queues
if count > 0 then out[4] = counts(keys) end
if count == want then more = true end -- the owner claims again when it has room
local mode = ARGV[10] == '' and 'n' or ARGV[10]
if count > 0 then
  local flat = out
  if list.limits and list.limits.bound then flat = nil end -- of fair queues
  hold(owner, ARGV[4], keys, want - count, mode, ARGV[9], flat, 4)
end
if not more and count < want and ARGV[10] ~= '' then
  if count == 0 then
    local is = last .. ':' .. want .. ':' .. mode .. ':' .. ARGV[9]
    if is ~= record then redis.call('HSET', K.c, owner, is) end
  end
  redis.call('ZADD', K.h, 'NX', now, owner)
else
  redis.call('ZREM', K.h, owner)
  if more and moved then hand(list, ARGV[2]) end -- other owners may get the rest
end
out[1], out[2], out[3] = 1, wait, more and 1 or 0
return out

-- Acquires, renews or releases the permits of a holder: all permits of the call, or none.
--
-- KEYS[3*i-2]      sorted set of limit i: its holders by the end of their lease, in microseconds
-- KEYS[3*i-1]      hash of limit i: the weight of each holder, and under '' their sum
-- KEYS[3*i]        string of limit i: the time up to which its rate is used, in microseconds
-- ARGV[1]          'acquire', 'renew' or 'release'
-- ARGV[2]          the holder
-- ARGV[3]          the lease in microseconds
-- ARGV[4*i]        weight
-- ARGV[4*i+1]      largest weight that all holders together may hold, 0 for no limit
-- ARGV[4*i+2]      time between two units of the rate in microseconds, 0 for no rate
-- ARGV[4*i+3]      time for which the rate may be used ahead, in microseconds
-- returns          acquire: -1 granted; 0 refused because of the held weight; n > 0 refused by a
--                  rate, for at least n microseconds
--                  renew: 1 renewed; 0 the holder does not hold one of the permits
--                  release: 1
--
-- Running it again with the same arguments changes only the lease. A permit with a rate and without
-- a largest weight is counted again.

local op, holder, lease = ARGV[1], ARGV[2], tonumber(ARGV[3])
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
local limits = #KEYS / 3

local function whole(n)
  return string.format('%.0f', n)
end

-- drop removes the holder who and its weight from a limit. Both keys of an empty limit are deleted.
local function drop(ends, weights, who)
  local weight = redis.call('HGET', weights, who)
  redis.call('ZREM', ends, who)
  if weight then
    redis.call('HDEL', weights, who)
    redis.call('HINCRBY', weights, '', '-' .. weight)
  end
  if redis.call('ZCARD', ends) == 0 then
    redis.call('DEL', weights)
  end
end

-- expire removes the holders of a limit whose leases have ended.
local function expire(ends, weights)
  for _, who in ipairs(redis.call('ZRANGEBYSCORE', ends, '-inf', whole(now))) do
    drop(ends, weights, who)
  end
end

-- hold makes the lease of the holder end after lease microseconds. The keys of the limit expire a
-- second after its last lease.
local function hold(ends, weights)
  redis.call('ZADD', ends, whole(now + lease), holder)
  local last = tonumber(redis.call('ZRANGE', ends, -1, -1, 'WITHSCORES')[2])
  local ttl = whole(math.ceil((last - now) / 1000) + 1000)
  redis.call('PEXPIRE', ends, ttl)
  redis.call('PEXPIRE', weights, ttl)
end

if op == 'release' then
  for i = 1, limits do
    drop(KEYS[3 * i - 2], KEYS[3 * i - 1], holder)
  end
  return 1
end

for i = 1, limits do
  expire(KEYS[3 * i - 2], KEYS[3 * i - 1])
end

if op == 'renew' then
  for i = 1, limits do
    if tonumber(ARGV[4 * i + 1]) > 0 and not redis.call('ZSCORE', KEYS[3 * i - 2], holder) then
      return 0
    end
  end
  for i = 1, limits do
    if tonumber(ARGV[4 * i + 1]) > 0 then
      hold(KEYS[3 * i - 2], KEYS[3 * i - 1])
    end
  end
  return 1
end

local refused, wait = false, 0
local again, used = {}, {}
for i = 1, limits do
  local ends, weights, rate = KEYS[3 * i - 2], KEYS[3 * i - 1], KEYS[3 * i]
  local weight, most = tonumber(ARGV[4 * i]), tonumber(ARGV[4 * i + 1])
  local interval, slack = tonumber(ARGV[4 * i + 2]), tonumber(ARGV[4 * i + 3])
  again[i] = most > 0 and redis.call('ZSCORE', ends, holder)
  if not again[i] then
    if most > 0 and tonumber(redis.call('HGET', weights, '') or '0') + weight > most then
      refused = true
    end
    if interval > 0 then
      used[i] = math.max(tonumber(redis.call('GET', rate) or '0'), now) + weight * interval
      wait = math.max(wait, used[i] - now - slack)
    end
  end
end
if wait > 0 then
  return math.ceil(wait)
end
if refused then
  return 0
end
for i = 1, limits do
  local ends, weights, rate = KEYS[3 * i - 2], KEYS[3 * i - 1], KEYS[3 * i]
  if tonumber(ARGV[4 * i + 1]) > 0 then
    if not again[i] then
      redis.call('HSET', weights, holder, ARGV[4 * i])
      redis.call('HINCRBY', weights, '', ARGV[4 * i])
    end
    hold(ends, weights)
  end
  if used[i] then
    redis.call('SET', rate, whole(used[i]), 'PX', whole(math.ceil((used[i] - now) / 1000) + 1000))
  end
end
return -1

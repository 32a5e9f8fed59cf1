-- Stores the end of a chord's part and counts the parts that have ended, in Celery's keys, so that
-- parts that Python runs count too.
--
-- KEYS[1]  hash of this chord: "<index>" the record of a part that Go ran; and, once it is decided,
--          "size", "failed" and "decider"; before that, "failed" counts the parts in Go
-- KEYS[2]  Celery's sorted set of the parts that have ended, by index
-- KEYS[3]  Celery's number of parts; it is deleted when Go decides, so that Python does not
-- KEYS[4]  Celery's number of parts added later
-- ARGV[1]  index of the part
-- ARGV[2]  number of parts, 0 if it is not known
-- ARGV[3]  1 if the part failed, else 0
-- ARGV[4]  1 if a first arrival of this part decides the chord, else 0
-- ARGV[5]  the record of the part
-- ARGV[6]  the end of the part as Celery stores it
-- ARGV[7]  time to live of a decided chord in milliseconds
-- ARGV[8]  time to live of an undecided chord in milliseconds
-- returns  {size, done, failed, decider}, with decider -1 for an undecided chord; {-1} if the index
--          or the number of parts does not fit
--
-- Running it again with the same arguments changes only the times to live.

local index, size = tonumber(ARGV[1]), tonumber(ARGV[2])
local decider = redis.call('HGET', KEYS[1], 'decider')
local known
if decider then
  known = tonumber(redis.call('HGET', KEYS[1], 'size'))
else
  known = tonumber(redis.call('GET', KEYS[3]) or 0)
end
local added = 0
if known > 0 and not decider then
  added = tonumber(redis.call('GET', KEYS[4]) or 0)
end
if known > 0 then
  if (size > 0 and size ~= known and not decider) or index >= known + added then
    return {-1}
  end
elseif size > 0 then
  local last = redis.call('ZREVRANGE', KEYS[2], 0, 0, 'WITHSCORES')
  if last[2] and last[2] ~= 'inf' and tonumber(last[2]) >= size then
    return {-1}
  end
  known = size
  if decider then
    redis.call('HSET', KEYS[1], 'size', size)
  else
    redis.call('SET', KEYS[3], size)
  end
end

local new = redis.call('HSETNX', KEYS[1], ARGV[1], ARGV[5]) == 1
if new and redis.call('ZCOUNT', KEYS[2], index, index) == 0 then
  redis.call('ZADD', KEYS[2], index, ARGV[6])
  if ARGV[3] == '1' then
    redis.call('HINCRBY', KEYS[1], 'failed', 1)
  end
end
local done = redis.call('ZCARD', KEYS[2])

-- failures returns the number of parts that failed, in Go or in Python.
local function failures()
  local n = 0
  for _, part in ipairs(redis.call('ZRANGE', KEYS[2], 0, -1)) do
    local head = string.sub(part, 1, 200)
    if string.find(head, '^%[1, ?"[^"]*", ?"FAILURE"') or string.find(head, '^%[1, ?"[^"]*", ?"REVOKED"') or
       string.find(head, '^\148\1[^{%[]*\167FAILURE') or string.find(head, '^\148\1[^{%[]*\167REVOKED') then
      n = n + 1
    end
  end
  return n
end

if not decider and ((known > 0 and done >= known + added) or (new and ARGV[4] == '1')) then
  decider = index
  local all = known > 0 and known + added or 0
  redis.call('HSET', KEYS[1], 'decider', index, 'size', all, 'failed', failures())
  redis.call('DEL', KEYS[3])
  known, added = all, 0
end

local ttl = decider and ARGV[7] or ARGV[8]
for _, key in ipairs(KEYS) do
  redis.call('PEXPIRE', key, ttl)
end
return {known + added, done, tonumber(redis.call('HGET', KEYS[1], 'failed') or 0), tonumber(decider or -1)}

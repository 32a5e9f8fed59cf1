#!lua flags=no-writes
-- Counts the messages of a queue. Delayed messages that are due count as ready.
-- KEYS: m d l x a r
-- ARGV: 1 the levels as the caller knows them.
-- Returns {1, ready, held, delayed, dead, dropped dead letters, time}. The time says since when the
-- oldest ready message waits, '' if that is not known. Returns {0} if the queue does not exist,
-- {2, levels} if it has other levels.
local meta = redis.call('HMGET', K.m, 'levels', 'ghosts', 'deaddropped')
if not meta[1] then return {0} end
if meta[1] ~= ARGV[1] then return {2, meta[1]} end
local due = redis.call('ZCOUNT', K.d, '-inf', clock())
local ready = due - tonumber(meta[2] or 0)
local oldest
local function wait(at)
  if at and (not oldest or tonumber(at) < tonumber(oldest)) then oldest = at end
end
if due > 0 then wait(redis.call('ZRANGE', K.d, 0, 0, 'WITHSCORES')[2]) end
for place = 1, math.max(1, #bounds(meta[1])) do
  local length = redis.call('LLEN', K.r(place))
  ready = ready + length
  local known = length > 0 and redis.call('HMGET', K.a, 'n' .. place, 'm' .. place)
  if known and known[2] then -- see arrived in plain.lua
    local first, at = tonumber(known[1]) - length, nil
    for before, time in string.gmatch(known[2], '(%d+):(%d+)') do
      if not at or tonumber(before) <= first then at = time end
    end
    wait(at)
  end
end
local held = math.max(0, redis.call('HLEN', K.l) - 1)
return {1, ready, held, redis.call('ZCARD', K.d) - due, redis.call('LLEN', K.x), tonumber(meta[3] or 0), oldest or ''}

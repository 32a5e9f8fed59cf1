#!lua flags=no-writes
-- Counts the messages of a fair queue, as stats.lua does for other queues.
-- KEYS: m t d l x r
-- ARGV: 1 the levels as the caller knows them.
-- Returns what stats.lua returns.
local meta = redis.call('HMGET', K.m, 'levels', 'deaddropped')
if not meta[1] then return {0} end
if meta[1] ~= ARGV[1] then return {2, meta[1]} end
local due = redis.call('ZCOUNT', K.d, '-inf', clock())
local delayed = redis.call('ZCARD', K.d) - due
local held = math.max(0, redis.call('HLEN', K.l) - 1)
-- every message is in t, except JSON tasks that no claim has seen
local ready = redis.call('HLEN', K.t) - held - delayed
for place = 1, math.max(1, #bounds(meta[1])) do
  local got = redis.call('LRANGE', K.r(place), 0, 999)
  for i = 1, #got do
    if string.byte(got[i], 1) == 123 then ready = ready + 1 end
  end
end
local oldest = ''
if due > 0 then oldest = redis.call('ZRANGE', K.d, 0, 0, 'WITHSCORES')[2] end
local seconds = redis.call('HKEYS', string.sub(K.m, 1, -2) .. 'v')
for i = 1, #seconds do
  local at = seconds[i] * 1000000
  if oldest == '' or at < tonumber(oldest) then oldest = string.format('%.0f', at) end
end
return {1, ready, held, delayed, redis.call('LLEN', K.x), tonumber(meta[2] or 0), oldest}

-- Returns the state of a chord, see arrive.lua.
--
-- KEYS     those of arrive.lua
-- returns  {size, done, failed, decider}, or {} if no part has ended

local done = redis.call('ZCARD', KEYS[2])
if done == 0 and redis.call('EXISTS', KEYS[1]) == 0 then
  return {}
end
local decider = redis.call('HGET', KEYS[1], 'decider')
local size
if decider then
  size = tonumber(redis.call('HGET', KEYS[1], 'size'))
else
  size = tonumber(redis.call('GET', KEYS[3]) or 0)
  if size > 0 then
    size = size + tonumber(redis.call('GET', KEYS[4]) or 0)
  end
end
return {size, done, tonumber(redis.call('HGET', KEYS[1], 'failed') or 0), tonumber(decider or -1)}

-- Gives a paused entry a place in the order of time again.
-- KEYS: jobs, next, swarmiji, and jobs and next of our own layout
-- ARGV: the id, the member of the entry, its time in milliseconds or ''
-- Returns 1, or 0 if there is no such entry. One that was not paused is left as it is.

-- of returns the keys of the layout that an entry lies in.
local own = redis.call('EXISTS', KEYS[4]) == 1
local function of(id)
  if own and redis.call('HEXISTS', KEYS[4], id) == 1 then return KEYS[4], KEYS[5] end
  return KEYS[1], KEYS[2]
end

local jobs, next = of(ARGV[1])
if redis.call('HEXISTS', jobs, ARGV[1]) == 0 then return 0 end
if redis.call('HDEL', KEYS[3], 'paused:' .. ARGV[1]) == 1 and ARGV[3] ~= '' then
  redis.call('ZADD', next, 'NX', ARGV[3], ARGV[2])
end
return 1

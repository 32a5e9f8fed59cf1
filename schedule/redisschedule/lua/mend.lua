-- Gives an entry a place in the order of time if it has none and is not paused.
-- KEYS: jobs, next, swarmiji, and jobs and next of our own layout
-- ARGV: the id, the member of the entry, its time in milliseconds
-- Returns 1 if it did, else 0.

-- of returns the keys of the layout that an entry lies in.
local own = redis.call('EXISTS', KEYS[4]) == 1
local function of(id)
  if own and redis.call('HEXISTS', KEYS[4], id) == 1 then return KEYS[4], KEYS[5] end
  return KEYS[1], KEYS[2]
end

local jobs, next = of(ARGV[1])
if redis.call('HEXISTS', jobs, ARGV[1]) == 0 or redis.call('HEXISTS', KEYS[3], 'paused:' .. ARGV[1]) == 1 then return 0 end
return redis.call('ZADD', next, 'NX', ARGV[3], ARGV[2])

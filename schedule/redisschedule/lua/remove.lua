#!lua flags=allow-oom
-- Takes an entry away. Claims on its ticks end with their leases.
-- KEYS: jobs, next, swarmiji, and jobs and next of our own layout
-- ARGV: the id, the member of the entry
-- Returns 1, or 0 if there was none.

-- of returns the keys of the layout that an entry lies in.
local own = redis.call('EXISTS', KEYS[4]) == 1
local function of(id)
  if own and redis.call('HEXISTS', KEYS[4], id) == 1 then return KEYS[4], KEYS[5] end
  return KEYS[1], KEYS[2]
end

local jobs, next = of(ARGV[1])
redis.call('ZREM', next, ARGV[2])
redis.call('HDEL', KEYS[3], 'paused:' .. ARGV[1], 'state:' .. ARGV[1], 'last:' .. ARGV[1])
return redis.call('HDEL', jobs, ARGV[1])

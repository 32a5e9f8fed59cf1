-- This part stands before every script that calls layout_of. KEYS of such a script begin with jobs,
-- next, swarmiji, and jobs and next of the own layout.

-- layout_of returns the keys of the layout that an entry lies in.
local own = redis.call('EXISTS', KEYS[4]) == 1
local function layout_of(id)
  if own and redis.call('HEXISTS', KEYS[4], id) == 1 then return KEYS[4], KEYS[5] end
  return KEYS[1], KEYS[2]
end

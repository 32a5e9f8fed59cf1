#!lua flags=allow-oom
-- Removes messages that are ready, at most as many as are given.
-- KEYS: m t n s g r
-- ARGV: 1 the levels as the caller knows them, 2 how many.
-- Returns {1, how many were removed, how many elements of the lists these were}, {0} if there is no such queue, {2, levels} if
-- the queue has others.
local meta = redis.call('HMGET', K.m, 'levels', 'ghosts')
if not meta[1] then return {0} end
if meta[1] ~= ARGV[1] then return {2, meta[1]} end
local left, removed, elements = tonumber(ARGV[2]), 0, 0
for place = 1, math.max(1, #bounds(meta[1])) do
  local got = left > 0 and redis.call('LPOP', K.r(place), left)
  if got then
    local gone = {}
    for i = 1, #got do
      if string.byte(got[i], 1) == 123 then
        removed = removed + 1
      elseif not (meta[2] and passed(place, got[i])) then
        gone[#gone + 1] = got[i]
      end
    end
    if #gone > 0 then forget(K.t, K.n, K.g, gone) end
    removed = removed + #gone
    elements = elements + #got
    left = left - #got
  end
end
return {1, removed, elements}

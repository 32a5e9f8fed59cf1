#!lua flags=allow-oom
-- Removes ready messages, at most a given number.
-- KEYS: m t n s g r
-- ARGV: 1 the levels as the caller knows them, 2 the maximum number.
-- Returns {1, number of removed messages, number of removed list elements}. An element of a message
-- that was deleted before counts only as an element. Returns {0} if the queue does not exist, {2,
-- levels} if it has other levels.
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

#!lua flags=allow-oom
-- Removes given dead letters.
-- KEYS: m x
-- ARGV: 1 the index of the first of them, from 0, which may be outdated; 2 and following: the
-- letters.
-- Returns {1, number of removed letters}, {0} if the queue does not exist.
if redis.call('EXISTS', K.m) == 0 then return {0} end
local wanted, left = {}, 0
for i = 2, #ARGV do
  wanted[ARGV[i]] = (wanted[ARGV[i]] or 0) + 1
  left = left + 1
end
local removed = 0
local from = tonumber(ARGV[1])
if redis.call('LINDEX', K.x, from) ~= ARGV[2] then from = redis.call('LPOS', K.x, ARGV[2]) or 0 end
local near = redis.call('LRANGE', K.x, from, from + 199)
for i = 1, #near do
  if (wanted[near[i]] or 0) > 0 then
    wanted[near[i]] = wanted[near[i]] - 1
    redis.call('LSET', K.x, from + i - 1, '')
    removed = removed + 1
  end
end
if removed > 0 then redis.call('LREM', K.x, removed, '') end
for letter, count in pairs(wanted) do
  if count > 0 then removed = removed + redis.call('LREM', K.x, count, letter) end
end
return {1, removed}

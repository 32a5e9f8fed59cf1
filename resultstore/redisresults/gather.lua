-- Stores the end of a member of a group.
--
-- KEYS[1]   hash of the group: a field for each member that has arrived, named by its index, and the
--           fields "size", "done", "failed", "largest" (index) and "decider"
-- ARGV[1]   index of the member
-- ARGV[2]   size of the group, 0 if the arrival does not know it
-- ARGV[3]   1: the member did not succeed, else 0
-- ARGV[4]   1: the member's end decides the group, else 0
-- ARGV[5]   the member's record
-- ARGV[6]   time to live of the group in milliseconds, if the group is decided
-- ARGV[7]   time to live of the group in milliseconds, if the group is undecided
-- returns   {size, done, failed, decider}; size is 0 while unknown, decider is -1 while undecided;
--           {-1} if index or size does not fit the group, and then nothing was changed
--
-- Running it again with the same arguments changes only the time to live and returns the current
-- state.

local key = KEYS[1]
local index, size = tonumber(ARGV[1]), tonumber(ARGV[2])
local known = redis.call('HMGET', key, 'size', 'done', 'failed', 'largest', 'decider')
local oldSize, done, failed = tonumber(known[1] or 0), tonumber(known[2] or 0), tonumber(known[3] or 0)
local largest, decider = tonumber(known[4] or -1), tonumber(known[5] or -1)

if oldSize > 0 and (index >= oldSize or (size > 0 and size ~= oldSize)) or size > 0 and largest >= size then
  return {-1}
end
if size == 0 then
  size = oldSize
end
if redis.call('HSETNX', key, ARGV[1], ARGV[5]) == 1 then
  done = done + 1
  failed = failed + tonumber(ARGV[3])
  largest = math.max(largest, index)
  if decider < 0 and ARGV[4] == '1' then
    decider = index
  end
end
if decider < 0 and size > 0 and done == size then
  decider = index
end
redis.call('HSET', key, 'size', size, 'done', done, 'failed', failed, 'largest', largest, 'decider', decider)
redis.call('PEXPIRE', key, decider < 0 and ARGV[7] or ARGV[6])
return {size, done, failed, decider}

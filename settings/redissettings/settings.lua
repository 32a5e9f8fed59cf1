-- Stores or deletes a value if its revision is still the expected one, and tells the watchers.
--
-- KEYS[1]   hash: a revision, a blank and the value by key; under '' the newest revision
-- ARGV[1]   'put' or 'delete'
-- ARGV[2]   the key
-- ARGV[3]   the expected revision, 0 for none
-- ARGV[4]   the channel of the watchers
-- ARGV[5]   put: the value
-- ARGV[6]   put: the largest number of keys
-- returns   the new revision (of a deletion: 0); -1: another revision; -2: the hash is full

local stored = redis.call('HGET', KEYS[1], ARGV[2])
local revision = stored and string.match(stored, '^%d+') or '0'
if revision ~= ARGV[3] then
  return -1
end
local new = 0
if ARGV[1] == 'delete' then
  if not stored then
    return -1
  end
  redis.call('HDEL', KEYS[1], ARGV[2])
else
  -- the hash has one field more than keys, if any revision was given
  if not stored and redis.call('HLEN', KEYS[1]) > tonumber(ARGV[6]) then
    return -2
  end
  new = redis.call('HINCRBY', KEYS[1], '', 1)
  redis.call('HSET', KEYS[1], ARGV[2], string.format('%.0f ', new) .. ARGV[5])
end
redis.call('PUBLISH', ARGV[4], '')
return new

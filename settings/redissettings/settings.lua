-- Stores or deletes a value if its present revision is the expected one, and notifies the watchers.
--
-- KEYS[1]   hash: a revision, a blank and the value by key; under '' the newest revision
-- ARGV[1]   'put' or 'delete'
-- ARGV[2]   the key
-- ARGV[3]   the expected revision, 0 if the key must have no value
-- ARGV[4]   the channel of the watchers
-- ARGV[5]   put: the value
-- ARGV[6]   put: the largest number of keys
-- returns   the new revision, after a deletion 0; -1: the revision is another one; -2: the hash is
--           full

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
  -- the hash has the field '' beside the keys, once a value was stored
  if not stored and redis.call('HLEN', KEYS[1]) > tonumber(ARGV[6]) then
    return -2
  end
  new = redis.call('HINCRBY', KEYS[1], '', 1)
  redis.call('HSET', KEYS[1], ARGV[2], string.format('%.0f ', new) .. ARGV[5])
end
redis.call('PUBLISH', ARGV[4], '')
return new

-- Enters the checkpoints of a task for one attempt, and stores a checkpoint.
--
-- KEYS[1]   record of the task
-- KEYS[2]   hash of the checkpoints: the fields "token" ("<generation>.<deliveries>"), "size" (in
--           bytes) and ":<name>" for each checkpoint
-- ARGV[1]   generation of the attempt
-- ARGV[2]   deliveries of the attempt
-- ARGV[3]   time to live in milliseconds
-- ARGV[4]   field of the checkpoint; "": store none and return all
-- ARGV[5]   value of the checkpoint: "<size>\n" and the checkpoint
-- ARGV[6]   largest number of checkpoints
-- ARGV[7]   largest size
-- returns   the fields and values of the hash, or {} after a store; -1 if the attempt is stale, -2 if
--           the record's key holds a value that is not a record, {names, size} that would be too many
--
-- Running it again with the same arguments changes only the time to live.

local generation, deliveries = tonumber(ARGV[1]), tonumber(ARGV[2])

-- older reports whether the attempt is older than the token (g, d).
local function older(g, d)
  g, d = tonumber(g), tonumber(d)
  return generation < g or generation == g and deliveries < d
end

local record = redis.pcall('GETRANGE', KEYS[1], 0, 95) -- longer than the first line
if type(record) == 'table' then
  if string.find(record.err, 'WRONGTYPE', 1, true) then
    return -2
  end
  return record
end
if record ~= '' then
  local g, d, _, finality = string.match(record, '^(%d+)%.(%d+) (%l+) (%l+)\n')
  if not g then
    return -2
  end
  if finality == 'final' or older(g, d) then
    return -1
  end
end

local key = KEYS[2]
local token = redis.call('HGET', key, 'token')
if token then
  local g, d = string.match(token, '^(%d+)%.(%d+)$')
  if older(g, d) then
    return -1
  end
end

local answer = {}
if ARGV[4] == '' then
  answer = redis.call('HGETALL', key)
else
  -- sizeOf returns the size in front of a value.
  local function sizeOf(value)
    return tonumber(string.match(value, '^(%d+)\n'))
  end
  local names = redis.call('HLEN', key)
  if token then
    names = names - 2
  end
  local size = tonumber(redis.call('HGET', key, 'size') or 0) + sizeOf(ARGV[5])
  local old = redis.call('HGET', key, ARGV[4])
  if old then
    size = size - sizeOf(old)
  else
    names = names + 1
  end
  if names > tonumber(ARGV[6]) or size > tonumber(ARGV[7]) then
    return {names, size}
  end
  redis.call('HSET', key, ARGV[4], ARGV[5], 'size', size)
end
redis.call('HSET', key, 'token', ARGV[1] .. '.' .. ARGV[2])
redis.call('HSETNX', key, 'size', 0)
redis.call('PEXPIRE', key, ARGV[3])
return answer

#!lua flags=allow-oom
-- Ends claims, and stores the states of their runs.
-- KEYS: jobs, next, swarmiji, and jobs and next of the own layout
-- ARGV: the time up to which leases may last, in milliseconds; then for each claim: the id, the member of the claim, the member of the
-- entry, 'x' if the entry is to be removed, 's' if it is and other ticks of it may be claimed, else ''; 's' if a state is left, 'd' if
-- none is to be kept, else ''; the state; the id of the entry whose state it is; the version of the entry or ''
-- Returns a string with one character for each claim: 1 ended, 0 not held any more, and then nothing was changed.

-- claimed looks for another claim on a tick of an entry.
local function claimed(next, id, till)
  local quoted = cjson.encode(id)
  for _, member in ipairs(redis.call('ZRANGEBYSCORE', next, '-inf', till)) do
    if string.find(member, id, 1, true) or string.find(member, quoted, 1, true) then
      local ok, value = pcall(cjson.decode, member)
      if ok and type(value) == 'table' and value.id == id then return true end
    end
  end
  return false
end

local answer = {}
for i = 2, #ARGV, 8 do
  local id, claim, entry, remove = ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3]
  local left, state, target = ARGV[i + 4], ARGV[i + 5], ARGV[i + 6]
  local jobs, next = layout_of(id)
  local held = redis.call('ZREM', next, claim)
  if held == 0 and next ~= KEYS[5] then held = redis.call('ZREM', KEYS[5], claim) end -- its entry was removed meanwhile
  if held == 1 then
    if left == 's' and redis.call('HEXISTS', (layout_of(target)), target) == 1 then
      redis.call('HSET', KEYS[3], 'state:' .. target, state)
    elseif left == 'd' then
      redis.call('HDEL', KEYS[3], 'state:' .. target)
    end
    if remove ~= '' and (redis.call('HGET', KEYS[3], 'version:' .. id) or '') == ARGV[i + 7] and not redis.call('ZSCORE', next, entry)
      and not (remove == 's' and claimed(next, id, ARGV[1])) then
      redis.call('HDEL', jobs, id)
      redis.call('HDEL', KEYS[3], 'paused:' .. id, 'state:' .. id, 'last:' .. id, 'runs:' .. id, 'group:' .. id, 'version:' .. id)
    end
  end
  answer[#answer + 1] = held
end
return table.concat(answer)

#!lua flags=allow-oom
-- Ends claims, with what their runs leave.
-- KEYS: jobs, next, swarmiji
-- ARGV: the time up to which leases may last, in milliseconds; then for each claim: the id, the member of the claim, the member of the
-- entry, 'x' if the entry is to be removed, 's' if it is and other ticks of it may be claimed, else ''; 's' if a state is left, 'd' if
-- none is to be kept, else ''; the state; the id of the entry whose state it is
-- Returns a string with one character for each claim: 1 ended, 0 not held any more, and then nothing was changed.

-- claimed looks for another claim on a tick of an entry.
local function claimed(id, till)
  local quoted = cjson.encode(id)
  for _, member in ipairs(redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', till)) do
    if string.find(member, id, 1, true) or string.find(member, quoted, 1, true) then
      local ok, value = pcall(cjson.decode, member)
      if ok and type(value) == 'table' and value.id == id then return true end
    end
  end
  return false
end

local answer = {}
for i = 2, #ARGV, 7 do
  local id, claim, entry, remove = ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3]
  local left, state, of = ARGV[i + 4], ARGV[i + 5], ARGV[i + 6]
  local held = redis.call('ZREM', KEYS[2], claim)
  if held == 1 then
    if left == 's' and redis.call('HEXISTS', KEYS[1], of) == 1 then
      redis.call('HSET', KEYS[3], 'state:' .. of, state)
    elseif left == 'd' then
      redis.call('HDEL', KEYS[3], 'state:' .. of)
    end
    if remove ~= '' and not redis.call('ZSCORE', KEYS[2], entry) and not (remove == 's' and claimed(id, ARGV[1])) then
      redis.call('HDEL', KEYS[1], id)
      redis.call('HDEL', KEYS[3], 'paused:' .. id, 'state:' .. id, 'last:' .. id)
    end
  end
  answer[#answer + 1] = held
end
return table.concat(answer)

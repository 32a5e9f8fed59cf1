-- Makes entries the entries of a group, or adds and changes them without a group.
-- KEYS: jobs, next, swarmiji, and jobs and next of the own layout
-- ARGV: the time in milliseconds, or '' for the server's; the group or ''; the revision; 1 to change nothing; the time up to which
-- leases may last, in milliseconds; then for each entry the id, the payload, the member, its time in milliseconds or '' for none
-- Returns the revision of the group. If it is not higher than the given one, then follow a string with one character for each entry,
-- its time after the change or '' for each entry, and the id and the payload of each removed entry.
-- The characters: a added, c changed, u unchanged, n unchanged without a time, o over, l late, t taken. With l or t nothing changed.
local now = tonumber(ARGV[1])
if not now then
  local time = redis.call('TIME')
  now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
end
local group, revision, own_hash = ARGV[2], ARGV[3], KEYS[3]

-- higher compares decimal numbers of 64 bits, which Lua's numbers cannot hold.
local function higher(a, b)
  if a == b then return false end
  local negative = string.sub(a, 1, 1) == '-'
  if negative ~= (string.sub(b, 1, 1) == '-') then return not negative end
  if #a ~= #b then return (#a > #b) ~= negative end
  return (a > b) ~= negative
end

if group ~= '' then
  local stored = redis.call('HGET', own_hash, 'revision:' .. group)
  if stored and higher(stored, revision) then return { stored } end
end

-- decide is Change.Decide of package schedule. It returns the outcome and the time after the change.
local function decide(id, payload, member, time)
  local jobs, next = layout_of(id)
  local old = redis.call('HGET', jobs, id)
  if not old and time == '' then return 'o', '' end
  local score = old and redis.call('ZSCORE', next, member) or ''
  local paused = old and redis.call('HEXISTS', own_hash, 'paused:' .. id) == 1
  if old and (redis.call('HGET', own_hash, 'group:' .. id) or '') ~= group then return 't', score end
  if old == payload then
    if score == '' and not paused then return 'n', '' end
    return 'u', score
  end
  if old and time == '' then return 'o', '' end
  if paused then return 'c', '' end
  if tonumber(time) <= now then return 'l', '' end
  return old and 'c' or 'a', time
end

local outcomes, times, wanted, refused = {}, {}, {}, ARGV[4] == '1'
for i = 6, #ARGV, 4 do
  local outcome, time = decide(ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3])
  outcomes[#outcomes + 1], times[#times + 1] = outcome, time
  wanted[ARGV[i]] = true
  refused = refused or outcome == 'l' or outcome == 't'
end

local answer, gone, any = { revision, table.concat(outcomes) }, {}, false
for _, time in ipairs(times) do answer[#answer + 1] = time end
if group ~= '' then
  local members = cjson.decode(redis.call('HGET', own_hash, 'members:' .. group) or '[]')
  for i = 1, #members, 2 do
    local id = members[i]
    local payload = not wanted[id] and redis.call('HGET', own_hash, 'group:' .. id) == group and redis.call('HGET', (layout_of(id)), id)
    if payload then
      gone[id], any = members[i + 1], true
      answer[#answer + 1], answer[#answer + 2] = id, payload
    end
  end
end
if refused then return answer end

local members = {}
for i = 6, #ARGV, 4 do
  local n = (i - 2) / 4
  local id, member, outcome, time = ARGV[i], ARGV[i + 2], outcomes[n], times[n]
  local jobs, next = layout_of(id)
  if outcome == 'a' then
    jobs, next = KEYS[4], KEYS[5]
    redis.call('HSET', own_hash, 'version:' .. id, string.format('%.0f', now))
    if group ~= '' then redis.call('HSET', own_hash, 'group:' .. id, group) else redis.call('HDEL', own_hash, 'group:' .. id) end
  elseif outcome == 'c' then
    redis.call('HINCRBY', own_hash, 'version:' .. id, 1)
    local score = redis.call('ZSCORE', next, member)
    if score and tonumber(score) <= now then -- a claim of nobody, as claimMember writes it
      local due = string.format('%.0f', math.floor(tonumber(score)))
      redis.call('ZADD', next, due, string.sub(member, 1, -2) .. ',"due":' .. due .. ',"by":"-"}')
    end
  end
  if outcome == 'a' or outcome == 'c' then
    redis.call('HSET', jobs, id, ARGV[i + 1])
    if time == '' then redis.call('ZREM', next, member) else redis.call('ZADD', next, time, member) end
  end
  if outcome == 'o' then
    gone[id], any = member, true
  else
    members[#members + 1], members[#members + 2] = id, member
  end
end
for id, member in pairs(gone) do
  local jobs, next = layout_of(id)
  redis.call('ZREM', next, member)
  redis.call('HDEL', jobs, id)
  redis.call('HDEL', own_hash, 'paused:' .. id, 'state:' .. id, 'last:' .. id, 'runs:' .. id, 'group:' .. id, 'version:' .. id)
end
-- Claims of removed entries would be valid again for an entry with the same id.
for _, next in ipairs(any and { KEYS[2], KEYS[5] } or {}) do
  for _, member in ipairs(redis.call('ZRANGEBYSCORE', next, '-inf', ARGV[5])) do
    local ok, value = pcall(cjson.decode, member)
    if ok and type(value) == 'table' and value.by and gone[value.id] then redis.call('ZREM', next, member) end
  end
end
if group ~= '' then
  redis.call('HSET', own_hash, 'revision:' .. group, revision)
  redis.call('HSET', own_hash, 'members:' .. group, #members > 0 and cjson.encode(members) or '[]')
end
return answer

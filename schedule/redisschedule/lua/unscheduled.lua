-- Scans a part of the entries for those without a due time that are not paused; they may be claimed.
-- KEYS: jobs and next of a layout, swarmiji
-- ARGV: the cursor, how many to look at
-- Returns the next cursor, then the ids.
local page = redis.call('HSCAN', KEYS[1], ARGV[1], 'COUNT', ARGV[2])
local answer = { page[1] }
for i = 1, #page[2], 2 do
  local id = page[2][i]
  if not redis.call('ZSCORE', KEYS[2], '{"id":' .. cjson.encode(id) .. '}') and not redis.call('ZSCORE', KEYS[2], '{"id":"' .. id .. '"}')
    and redis.call('HEXISTS', KEYS[3], 'paused:' .. id) == 0 then
    answer[#answer + 1] = id
  end
end
return answer

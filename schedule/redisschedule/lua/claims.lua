-- Scans a part of the members for those that are not the form of an entry, such as claims.
-- KEYS: next
-- ARGV: the cursor, how many to look at
-- Returns the next cursor, then the members.
local page = redis.call('ZSCAN', KEYS[1], ARGV[1], 'COUNT', ARGV[2])
local answer = { page[1] }
for i = 1, #page[2], 2 do
  if not string.find(page[2][i], '^{"id":"%x+"}$') then answer[#answer + 1] = page[2][i] end
end
return answer

#!lua flags=allow-oom
-- Drops members of entries that do not exist.
-- KEYS: jobs, next, swarmiji, and jobs and next of the own layout
-- ARGV: for each member the id that it names, '' for none, and the member
-- Returns a string with one character for each member: 1 dropped, 0 not.
local answer = {}
for i = 1, #ARGV, 2 do
  local gone = 0
  for layout = 1, 4, 3 do
    if ARGV[i] == '' or redis.call('HEXISTS', KEYS[layout], ARGV[i]) == 0 then
      gone = math.max(gone, redis.call('ZREM', KEYS[layout + 1], ARGV[i + 1]))
    end
  end
  answer[#answer + 1] = gone
end
return table.concat(answer)

-- Adds entries that are not there, each with its place in the order of time: never one without the other.
-- KEYS: jobs, next
-- ARGV: for each entry its id, its payload, its member of next, and its time in milliseconds
-- Returns a string with one character for each entry: 1 added, 0 there before, and then nothing was changed.
local answer = {}
for i = 1, #ARGV, 4 do
  local new = redis.call('HSETNX', KEYS[1], ARGV[i], ARGV[i + 1])
  if new == 1 then redis.call('ZADD', KEYS[2], ARGV[i + 3], ARGV[i + 2]) end
  answer[#answer + 1] = new
end
return table.concat(answer)

-- Looks whether a job is still ours, and gives its note a new start time if there is one.
--
-- KEYS[1]  the progress
-- ARGV[1]  the payload
-- ARGV[2]  the new start time, or "" to only look
-- ARGV[3...]  the start times that the note may have
-- Returns 1 if it is ours, else 0.
local start = redis.call('HGET', KEYS[1], ARGV[1])
for i = 3, #ARGV do
  if start == ARGV[i] then
    if ARGV[2] ~= '' then
      redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
    end
    return 1
  end
end
return 0

-- Checks that this process still holds a job, and stores a new start time if one is given.
--
-- KEYS[1]     the jobs in progress: hash of payload -> start time
-- ARGV[1]     the payload
-- ARGV[2]     the new start time; "": only check
-- ARGV[3...]  the start times that this process may have stored: one of them proves that it holds
--             the job
-- Returns 1 if the job is held, otherwise 0: then nothing was changed.
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

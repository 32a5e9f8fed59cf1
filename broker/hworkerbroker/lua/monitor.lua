-- Checks one page of the jobs in progress. Jobs that are in progress for too long go to the front
-- of the queue.
--
-- KEYS[1]  the jobs in progress: hash of payload -> start time
-- KEYS[2]  the jobs
-- ARGV[1]  how long a job may be in progress, in microseconds
-- ARGV[2]  the cursor of the page: "0" at first, then the one that the previous call returned
-- Returns the next cursor, "0" after the last page, and the number of jobs that went back.
--
-- Start times are compared as texts, without the quotes and the Z. For times of this form the order
-- of texts is the order of times, also if a writer leaves out zeros at the end. A value of another
-- form counts as a time long ago.
local limit = string.match(ago(tonumber(ARGV[1])), '^"(.*)Z"$')
local page = redis.call('HSCAN', KEYS[1], ARGV[2], 'COUNT', 100)
local back = 0
for i = 1, #page[2], 2 do
  local start = string.match(page[2][i + 1], '^"(%d%d%d%d%-%d%d%-%d%dT%d%d:%d%d:%d%d%.?%d*)Z"$')
  -- HDEL returns 0 if another monitor, or an earlier page, has returned the job already.
  if (not start or start < limit) and redis.call('HDEL', KEYS[1], page[2][i]) == 1 then
    redis.call('RPUSH', KEYS[2], page[2][i])
    back = back + 1
  end
end
return { page[1], back }

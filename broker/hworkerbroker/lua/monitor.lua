-- One page of a monitor's round: puts jobs that are in progress for too long back to the front of the queue.
--
-- KEYS[1]  the progress
-- KEYS[2]  the jobs
-- ARGV[1]  how long a job may take, in microseconds
-- ARGV[2]  where to go on: "0" first, then what the last page returned
-- Returns where to go on, "0" after the last page, and how many jobs went back.
--
-- Start times are compared as texts, quotes and Z taken off: for times of this form that is the order of time, also where a
-- writer leaves out zeros at the end. What is no such time counts as long ago.
local limit = string.match(ago(tonumber(ARGV[1])), '^"(.*)Z"$')
local page = redis.call('HSCAN', KEYS[1], ARGV[2], 'COUNT', 100)
local back = 0
for i = 1, #page[2], 2 do
  local start = string.match(page[2][i + 1], '^"(%d%d%d%d%-%d%d%-%d%dT%d%d:%d%d:%d%d%.?%d*)Z"$')
  -- HDEL tells one of several monitors, or a page that is seen twice, that the job is back already.
  if (not start or start < limit) and redis.call('HDEL', KEYS[1], page[2][i]) == 1 then
    redis.call('RPUSH', KEYS[2], page[2][i])
    back = back + 1
  end
end
return { page[1], back }

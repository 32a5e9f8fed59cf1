-- Claims jobs: it moves them from the queue to the jobs in progress, in one step. So no job ever
-- exists only in a worker's memory.
--
-- KEYS[1]  the jobs: a list whose right end is next
-- KEYS[2]  the jobs in progress: hash of payload -> start time
-- ARGV[1]  the maximum number of jobs
-- Returns the start time, then the payloads, the first to run first.
--
-- With an empty queue it writes nothing. Redis gives a missing value to Lua as false, which is not
-- nil. hworker 0.2.0 tests for "not nil" and so stores a job "false" each time it polls an empty
-- queue.
--
-- Two equal payloads would share one start time, and the end of the first job would end both. So a
-- job whose equal is in progress goes to the back of the queue and waits.
local start = ago(0)
local answer, twins = { start }, {}
for _ = 1, tonumber(ARGV[1]) do
  local payload = redis.call('RPOP', KEYS[1])
  if not payload then break end
  if redis.call('HSETNX', KEYS[2], payload, start) == 1 then
    answer[#answer + 1] = payload
  else
    twins[#twins + 1] = payload
  end
end
for _, payload in ipairs(twins) do
  redis.call('LPUSH', KEYS[1], payload)
end
return answer

-- Takes jobs from the queue and notes each of them as in progress, in one step: no job is ever only in a worker's memory.
--
-- KEYS[1]  the jobs: a list, of which the right end is next
-- KEYS[2]  the progress: a hash of payload -> start time
-- ARGV[1]  how many jobs to take at most
-- Returns the start time, then the payloads, the first to run first. Only the start time when there is nothing to do.
--
-- An empty queue writes nothing. Redis hands a missing value to Lua as false, which is not nil: hworker 0.2.0 asks for
-- "not nil" and so notes a job of the text "false" each time it looks at an empty queue.
--
-- Two equal payloads would share one note, and the end of the first would be the end of both. So a job whose equal is in
-- progress waits: it goes to the back of the queue, and its turn comes again.
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

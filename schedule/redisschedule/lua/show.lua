-- Returns entries, and changes nothing.
-- KEYS: jobs, next, swarmiji, and jobs and next of the own layout
-- ARGV: for each entry its id and its member
-- Returns for each entry the payload, the score of the member, and of the hash swarmiji whether it is paused, the state, the last
-- instant, those of the last runs, and the group; each may be nil.
local answer = {}
for i = 1, #ARGV, 2 do
  local id, n = ARGV[i], #answer
  local jobs, next = layout_of(id)
  local kept = redis.call('HMGET', KEYS[3], 'paused:' .. id, 'state:' .. id, 'last:' .. id, 'runs:' .. id, 'group:' .. id)
  answer[n + 1], answer[n + 2] = redis.call('HGET', jobs, id), redis.call('ZSCORE', next, ARGV[i + 1])
  for j = 1, 5 do answer[n + 2 + j] = kept[j] end
end
return answer

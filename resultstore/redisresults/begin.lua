-- Says whether a copy of a task is the one to be run: the first one that asked.
--
-- KEYS[1]   name of the copy that is run
-- ARGV[1]   name of the copy that asks
-- ARGV[2]   how long the answer is remembered, in milliseconds
-- returns   1: it is, 0: another one is

if redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2], 'NX') then
  return 1
end
if redis.call('GET', KEYS[1]) == ARGV[1] then
  return 1
end
return 0

-- Stores the number of parts of a chord, unless it is stored already or Go has decided the chord.
-- With the number, Python would decide that one again.
--
-- KEYS[1]  hash of this chord, see arrive.lua
-- KEYS[2]  Celery's number of parts
-- ARGV[1]  number of parts
-- ARGV[2]  its time to live in milliseconds
-- returns  1
--
-- Running it again changes nothing.

if redis.call('HEXISTS', KEYS[1], 'decider') == 0 then
  redis.call('SET', KEYS[2], ARGV[1], 'PX', ARGV[2], 'NX')
end
return 1

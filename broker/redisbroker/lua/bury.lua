#!lua flags=allow-oom
-- Moves a message that is held to the dead letters.
-- ARGV: 1 its key, 2 its claim, 3 the reason.
-- Returns 1, or 0 if it is not held under that claim.
if not held({ARGV[1]}, {ARGV[2]})[1] then return 0 end
local value = redis.call('HGET', K[2], ARGV[1]) or ''
redis.call('HDEL', K[4], ARGV[1])
forget({ARGV[1]})
local time = struct.pack('>I4I4', math.floor(clock() / 1000000), clock() % 1000000)
redis.call('RPUSH', K[10], time .. struct.pack('>I2I4', #ARGV[1], #ARGV[3]) .. ARGV[1] .. ARGV[3] .. value)
return 1

#!lua flags=allow-oom
-- Changes the verdict of a note of a start. It does nothing if the note does not exist.
-- KEYS: e
-- ARGV: 1 the nonce, 2 the verdict.
-- Returns 1.
local all = redis.call('LRANGE', K.e, 0, -1)
for i = 1, #all do
  if string.match(all[i], '^%d (%S+) ') == ARGV[1] then redis.call('LSET', K.e, i - 1, ARGV[2] .. string.sub(all[i], 2)) end
end
return 1

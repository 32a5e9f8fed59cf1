#!lua flags=allow-oom
-- Notes a start of a message, and keeps the notes of that message for a time from now on.
-- KEYS: e
-- ARGV: 1 the nonce, 2 the note, 3 how many notes are kept, 4 for how many seconds.
-- Returns the notes that were there before this one, oldest first.
local all = redis.call('LRANGE', K.e, 0, -1)
local earlier, cleared = {}, nil
for i = 1, #all do
  local verdict, nonce = string.match(all[i], '^(%d) (%S+) ')
  if nonce == ARGV[1] then return earlier end
  if verdict == '1' and not cleared then cleared = all[i] end
  earlier[i] = all[i]
end
if #all >= tonumber(ARGV[3]) then redis.call('LREM', K.e, 1, cleared or all[1]) end
redis.call('RPUSH', K.e, ARGV[2])
redis.call('EXPIRE', K.e, ARGV[4])
return earlier

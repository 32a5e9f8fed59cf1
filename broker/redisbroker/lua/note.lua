#!lua flags=allow-oom
-- Stores a note of a start of a message. The notes of the message expire a given time after the
-- last one. If there are too many, it drops the oldest one that is cleared, or else the oldest. It
-- stores nothing if a note with the nonce exists.
-- KEYS: e
-- ARGV: 1 the nonce, 2 the note, 3 the maximum number of notes, 4 the expiry in seconds.
-- Returns the notes that were stored before this one, the oldest first.
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

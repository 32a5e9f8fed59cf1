-- Stores the document of a result and sends it to the channel of its task, as Celery does.
--
-- KEYS[1]  key of the document, also the channel
-- ARGV[1]  the document
-- ARGV[2]  its time to live in milliseconds
-- ARGV[3]  SHA-1 in hexadecimal of the document that it may replace, "" for none
-- returns  1: stored, or the same document was stored already; a text: another document, which stays
--
-- Running it again with the same arguments changes nothing.

if redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2], 'NX') then -- for most tasks this is the only document
  redis.call('PUBLISH', KEYS[1], ARGV[1])
  return 1
end
local stored = redis.call('GET', KEYS[1])
if stored == ARGV[1] then
  return 1
end
if redis.sha1hex(stored) ~= ARGV[3] then
  return stored
end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
redis.call('PUBLISH', KEYS[1], ARGV[1])
return 1

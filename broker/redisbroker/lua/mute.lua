#!lua flags=allow-oom
-- Has an owner handed nothing that it does not claim.
-- KEYS: c h
-- ARGV: 1 the owner.
-- Returns the place of its last claim, whoever made it, or -1 if there is no such owner.
redis.call('ZREM', K.h, ARGV[1])
return tonumber(string.match(redis.call('HGET', K.c, ARGV[1]) or '-1', '^-?%d+'))

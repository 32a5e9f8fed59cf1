#!lua flags=allow-oom
-- Stops the delivery of messages on an owner's channel, until its next claim. Another waiting owner is
-- notified: this one may have been notified without a claim, or only it knows when a message is due.
-- KEYS: c h
-- ARGV: 1 the owner, 2 the common beginning of the owners' channels.
-- Returns the number of the owner's last claim, made by itself or by the server. Returns -1 if the
-- owner does not exist.
redis.call('ZREM', K.h, ARGV[1])
nudge(K.h, ARGV[2])
return tonumber(string.match(redis.call('HGET', K.c, ARGV[1]) or '-1', '^-?%d+'))

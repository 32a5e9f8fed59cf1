// Package redisbroker distributes tasks through Redis 7 or newer: one server, Sentinel or a cluster.
//
//	b, err := redisbroker.New(redisbroker.Config{Redis: &redis.UniversalOptions{Addrs: []string{"host:6379"}}})
//
// # What lies on the server
//
// All keys of a queue begin with swj:{<namespace>.<queue>}: and so lie in one slot of a cluster.
//
//	m         hash     the queue itself: levels (the upper bounds, separated by commas; "" is one level), version, counters
//	t         hash     key of a message -> the message as it is stored
//	r0, r1 …  lists    keys of the messages that are ready, by level, the next one at the left
//	d         zset     keys of the messages that wait for a time; the score is in microseconds since 1970
//	l         hash     key of a message that is held -> owner.place of the claim under which it is held
//	c         hash     owner -> "last:free:mode:open", its last claim and those of which something may be held; owner.place -> keys
//	o         zset     owners; the score is when the lease ends, in microseconds on the server's clock
//	h         zset     owners that wait for messages, the longest first; free in c says how many each is handed without asking
//	n         hash     key -> how often the message was handed out before
//	g         hash     id -> the generations above 0 of which there are messages
//	s         hash     elements of ready lists to pass over, since their messages were deleted
//	x         list     dead letters, the oldest first; deaddropped in m counts those that the bounds have removed
//	e:<key>   list     notes of starts of the message with that key, the oldest first; it expires 24 h after the last one
//
// The key of a message is its id, and from generation 1 on the id, a space and the generation. An owner is a subscription, under
// a random number. Channels carry words and messages to owners that wait.
//
// A note of a start is a text of five words: the verdict (0 open, 1 cleared, 2 died), the nonce, the node, 1 if the handler ran
// alone and else 0, and when it began in microseconds since 1970. A node that notes starts has the key swj:{<namespace>.}:<node>:
// "here", which is renewed each second and expires after 10 s, or "left" for 24 h. Whoever asks waits until it is renewed.
//
// The scripts in lua/ are all that ever writes these keys; each says what it takes and returns. To add a task from another program,
// push its JSON text, an object, to the right of r0: RPUSH swj:{default.mail}:r0 '{"task":"mail.send","args":["a"]}'. It gets
// an id when it is claimed, which a consumer that waits does within Config.Poll; an empty message on the channel of an owner
// that stands in h has it look at once. The channel is swj:{<namespace>.<queue>}:w<owner>. The queue must exist: a consumer that
// subscribes makes it.
//
// A message is stored, in t, as a JSON text that begins with '{', or as: the byte 1; its priority,
// 4 bytes, signed; when it expires, 8 bytes, in milliseconds since 1970, 0 is never; the length of
// its content type, 1 byte; the length of its headers and properties, 4 bytes; the content type;
// headers and properties, two msgpack maps, or nothing; the body. A dead letter is: when it was
// buried, 4 bytes of seconds since 1970 and 4 of microseconds; the length of its key, 2 bytes; the
// length of the notes, 4 bytes; key; notes; the message as it was stored. The notes are the reason.
// Where 2^20 was added to the microseconds, the notes are the reason, the stack, the attempts, 4
// bytes, and the length of the stack, 4 bytes. Numbers begin with their highest byte. An id that
// begins with '{' or '~' has a '~' before it in its key. These forms only ever get additions.
//
// # What it promises
//
//   - A confirmed message survives what Redis' own settings survive. With appendfsync everysec a kill of the server or a loss of
//     power may take the last second or two along; a failover takes what the replica had not got, unless Config.WaitReplicas
//     has each confirmation wait for replicas. Settings that weaken the promise are named in the log, once.
//   - A message is moved, never taken away, until it is settled. What an owner holds goes back to the front of the queue when
//     its lease ends on the server's clock; every settlement names the claim, so that a late one is broker.ErrLeaseLost.
//   - An answer that is lost is asked for again: a claim by the same number gives the same messages.
//   - After the server's data went back in time, what it holds for an owner who knows nothing of it goes back to the front.
//   - A repeated (ID, Generation) of what is queued, waiting or held is one message.
//   - A consumer that waits is handed what is published in the same step, as long as the places are free that it had at its last
//     claim, and looks by itself every Config.Poll. If nobody hears it on the consumer's channel, the message stays for others.
//   - A note of a start is one trip, its node's first one two. Notes and signs of life are written also when memory is full: what a
//     consumer holds must go on if memory is to become free. They do not wait for replicas: a failover may lose the last notes, and
//     with them the count of a crash. 100,000 notes take about 35 MB.
//   - Retry is one step within a queue. Into another queue it is one on a single server and with Sentinel; on a cluster the
//     successor is published first, so that a crash between the two leaves one message too many.
//
// The server's clock decides about times and leases. One that is set forward by more than a lease ends leases, and what was
// held is handed out again.
//
// # Why scripts and not streams
//
// Measured on Redis 7.0 with appendfsync everysec, entries of 290 bytes, the server's processor time for one message on a machine
// that others used too (2 cores; raw client, the scripts in an early form):
//
//	enqueue    XADD, pipelines of 500                   4.0 to 5.0 us
//	           script, 500 messages in a call           3.6 to 4.4 us
//	           script, HSETNX for each message          6.0 to 6.4 us
//	consume    XREADGROUP 256, then XACK and XDEL       5.7 to 5.8 us
//	           scripts, 256 in a claim, then ack        6.5 to 7.0 us
//
// So the scripts cost the same, and can give what streams cannot: delays, priorities, the front of the queue for what comes back,
// one message for a repeated pair, finding one by its id, and a claim that can be repeated. What makes them fast is that
// each Redis command in them is for many messages; a script for a single message costs ten times as much as XADD.
package redisbroker

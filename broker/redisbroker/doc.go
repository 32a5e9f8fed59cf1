// Package redisbroker distributes tasks through Redis 7 or newer: one server, Sentinel or a
// cluster.
//
//	b, err := redisbroker.New(redisbroker.Config{
//		Redis: &redis.UniversalOptions{Addrs: []string{"host:6379"}},
//	})
//
// # Keys on the server
//
// All keys of a queue begin with swj:{<namespace>.<queue>}: and so are in one slot of a cluster.
//
//	m         hash   the queue: version, counters, levels (upper bounds with commas; "" is one level;
//	                 "fair" comes before the bounds of a fair queue), floors of tags
//	t         hash   key of a message -> the stored message
//	r0, r1 …  lists  keys of the ready messages of a level, the next one at the left
//	d         zset   keys of the delayed messages; the score is the time in microseconds since 1970
//	l         hash   key of a held message -> owner.place of the claim that holds it
//	c         hash   owner -> "last:free:mode:open", its last claim and its open claims;
//	                 owner.place -> keys of the claim's messages
//	o         zset   owners; the score is the lease's end in microseconds on the server's clock
//	h         zset   owners that wait for messages, the longest wait first; free in c counts how
//	                 many messages each receives without asking
//	n         hash   key -> the number of earlier deliveries of the message
//	g         hash   id -> the generations above 0 of its messages
//	s         hash   elements of ready lists to skip, because their messages were deleted
//	x         list   dead letters, the oldest first; deaddropped in m counts the dropped ones
//	a         hash   since when the first message of a ready list waits, see arrived in lua/plain.lua
//	e:<key>   list   notes of starts of the message, the oldest first; expires after 24 h
//
// A fair queue has the ready messages in turns over fairness keys instead, for each level:
//
//	k0 …      zset   fairness keys; the score is the key's tag
//	f0 …      hash   fairness key -> its line: '-' or '+', and its next ready messages
//	f0:<key>  list   the ready messages behind a line that begins with '+'
//	w0 …      hash   fairness key -> weight of its last message, if it had one other than 1
//
// It also has this key for all levels:
//
//	v         hash   second since 1970 -> the number of ready messages that arrived then
//
// It has these keys while consumers use bounds (broker.SubscribeOptions). lua/bounds.lua describes
// them, and the fields of m for bounds:
//
//	b         hash   fairness key -> number of its held messages
//	u         zset   fairness keys; the score is the time up to which the rate is used; expires
//	p         zset   fairness keys at a limit; the score is the time when a rate allows the next
//	q         hash   fairness key at a limit -> its levels and tags
//
// lua/fair.lua describes tags and lines. Ready lists of a fair queue hold only messages that other
// programs and older versions have added. The next claim moves them into the turns.
//
// The key of a message is its id. From generation 1 on it is the id, a space and the generation. An
// owner is a subscription, under a random number. Each owner has a channel for notifications and
// messages. A claim is a number of messages that an owner received at once; its place is its number
// among the owner's claims.
//
// A note of a start is a text of five words: the verdict, the nonce, the node, 1 if the handler ran
// alone or 0, and the start in microseconds since 1970. The verdict is 0 (open), 1 (cleared) or 2
// (died).
//
// A node that notes starts has the key swj:{<namespace>.}:<node>. Its value is "here", renewed each
// second with an expiry of 10 s, or "left" for 24 h. A process that asks for the node waits until
// the key is renewed.
//
// Only the scripts in lua/ write these keys. Each script documents its arguments and its answer.
//
// To add a task from another program, push its JSON text, an object, to the right of r0:
//
//	RPUSH swj:{default.mail}:r0 '{"task":"mail.send","args":["a"]}'
//
// The task gets an id when it is claimed. A waiting consumer claims it within Config.Poll. An empty
// message on the channel of an owner in h makes that owner claim at once. The channel is
// swj:{<namespace>.<queue>}:w<owner>. The queue must exist: a consumer creates it when it
// subscribes.
//
// A message is stored, in t, as a JSON text that begins with '{', or as these parts:
//
//   - the byte 1
//   - its priority, 4 bytes, signed
//   - its expiry, 8 bytes, in milliseconds since 1970; 0 is never
//   - the length of its content type, 1 byte
//   - the length of its headers and properties, 4 bytes
//   - the content type
//   - headers and properties, two msgpack maps, or nothing; the headers swj-key and swj-weight, the
//     fairness key and the weight, come first
//   - the body
//
// A dead letter is stored as these parts:
//
//   - when it was dead-lettered, 4 bytes of seconds since 1970 and 4 of microseconds
//   - the length of its key, 2 bytes
//   - the length of the notes, 4 bytes
//   - the key
//   - the notes
//   - the message as it was stored
//
// The notes are the reason. If 2^20 was added to the microseconds, the stack follows, then the
// attempts and the length of the stack, 4 bytes each. Numbers begin with their highest byte. An id
// that begins with '{' or '~' has a '~' before it in its key. Later versions only add to these
// forms.
//
// # Promises
//
//   - A confirmed message is as durable as Redis' own settings make it. With appendfsync everysec,
//     a kill of the server or a loss of power may lose the last second or two. A failover loses
//     messages that the replica did not have. Config.WaitReplicas makes each confirmation wait for
//     replicas. Settings that weaken the promise are logged once.
//   - Until it is settled, a message is moved, never removed. When an owner's lease ends on the
//     server's clock, its messages go back to the front of the queue. Every settlement names the
//     claim, so a late one returns broker.ErrLeaseLost.
//   - A lost answer is asked for again: a claim with the same number returns the same messages.
//   - Messages of an owner that does not know them go back to the front. This happens after the
//     server's data was restored to an earlier state.
//   - A repeated (ID, Generation) of a message that is queued, delayed or held is one message.
//   - A waiting consumer receives a message in the same step in which it is published. The limit is
//     the number of free places at its last claim. It also claims every Config.Poll. If no process
//     receives the message on the consumer's channel, it stays for others.
//   - A note of a start is one round trip, the first one of its node two. Notes and signs of life
//     are written even when the server's memory is full: consumers must continue for memory to
//     become free. They do not wait for replicas. A failover may lose the last notes, and with them
//     the count of a crash. 100,000 notes take about 35 MB.
//   - Retry is atomic within a queue. Into another queue it is atomic on a single server and with
//     Sentinel. On a cluster the successor is published first, so a crash between the two steps
//     leaves one message too many.
//
// A fair queue has exact turns. Processor time of the server for a message, added and consumed, was
// 0.8 to 0.95 of a plain queue's speed with ten keys. With one message a key, and with ten, it was
// 0.45 to 0.55. A key without a backlog costs about 250 bytes. With a Max for each key that was not
// reached, the server needed 1.1 to 1.35 times as much time for a message.
//
// Bounds are checked in the claim, so no consumer takes more than its bounds allow. A consumer with
// bounds is only notified of new messages, and claims them itself. Each consumer brings its own
// bounds. If they differ, each end of a message wakes up to 16 waiting consumers. The server counts
// held messages from the first claim with bounds until a minute after the last one. A consumer of
// an earlier version does not count: beside one, limits may be wrong for up to a second. Use bounds
// when all consumers are new.
//
// The server's clock decides about times and leases. If it is set forward by more than a lease,
// leases end and the held messages are delivered again.
//
// # Why scripts and not streams
//
// Processor time of the server per message, measured on Redis 7.0 with appendfsync everysec and
// entries of 290 bytes. The machine had 2 cores and other load; the client was the raw one, the
// scripts an early form.
//
//	enqueue    XADD, pipelines of 500                   4.0 to 5.0 us
//	           script, 500 messages in a call           3.6 to 4.4 us
//	           script, HSETNX for each message          6.0 to 6.4 us
//	consume    XREADGROUP 256, then XACK and XDEL       5.7 to 5.8 us
//	           scripts, 256 in a claim, then ack        6.5 to 7.0 us
//
// So the scripts cost the same. They offer features that streams lack: delays, priorities, and
// returning a message to the front of the queue. A repeated pair is one message, a message can be
// found by its id, and a claim can be repeated. They are fast because each Redis command in them
// handles many messages. A script for a single message costs ten times as much as XADD.
package redisbroker

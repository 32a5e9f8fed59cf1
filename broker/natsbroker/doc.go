// Package natsbroker distributes tasks through NATS JetStream, best on nats-server 2.12 or later. Servers since 2.9 work too,
// see below.
//
//	b, err := natsbroker.New(natsbroker.Config{Connect: natsconnect.Config{URLs: []string{"nats://user:password@host"}}})
//
// The package broker/natsbroker/embedded runs such a server within the process; it is given as Config.InProcess.
//
// # What lies on the server
//
// This is a public format: any program may write and read it.
//
// Each namespace has one stream, SWJ_<namespace>, with work-queue retention, one message for each subject (max msgs per
// subject 1, discard old), schedules, message TTLs and atomic batches allowed. Its subjects, of which <q> is the queue's name
// with '=' for '.', and <id> the message's id with '=' and two upper-case hex digits for each byte that is not a letter, a
// digit, '-' or '_':
//
//	swj.<namespace>.T.<q>.<level>.<id>        a message that waits or is held. Levels count from 0, the most urgent; a queue without levels has only 0
//	swj.<namespace>.S.<q>.<id>                a message with a time: a schedule "@at <time>" whose target is a T subject
//	swj.<namespace>.D.<q>.<id>.<generation>   a dead letter
//	swj.<namespace>.Q.<q>                     the queue's record, JSON: {"levels":[10,100]}, the upper bounds of its levels. The first that is written holds
//	swj.<namespace>.M.<q>                     {"removed":n}: what was deleted or purged up to sequence n may be published again; it vanishes by itself
//	swj.<namespace>.W.<q>.<id>.<generation>   notes of starts of a message, the oldest first; they vanish 24 h after the last one
//	swj.<namespace>.L.<node>                  the node, with '=' for '.', has left; it vanishes after 24 h
//
// A stream that an older version has made gets the last two with the first note. Notes are a JSON list of
// {"nonce":...,"node":...,"alone":true,"at":n,"verdict":n}: when the start began, in microseconds since 1970; the verdict is 1 for
// cleared, 2 for died, and missing while it is open. Whoever writes them expects the sequence of what was read. A node that
// notes starts answers requests on swj.<namespace>.P.<node>, which is in no stream.
//
// The durable pull consumer w_<q>_<level> hands out the messages of a level, each to be acknowledged explicitly, without limits.
//
// The body of a message is its payload. Its headers:
//
//	Content-Type                         as it says
//	Swj-Generation, Swj-Priority         decimal; missing: 0 and 100
//	Swj-Expires, Swj-Not-Before          Unix milliseconds. A message with the latter is not handed out before
//	Swj-Extra                            JSON {"ct":...,"h":{name:value},"p":{name:text}}: a content type that fits no header, Headers and Properties. A value is
//	                                     {"s":text}, {"x":base64 of a string}, {"b":base64 of bytes}, {"t":bool}, {"i":integer} or {"f":"float"}
//	Swj-Reason, Swj-Stack                of a dead letter, JSON strings
//	Swj-Attempts                         of a dead letter, decimal: how many runs had ended
//	Swj-Died                             of a dead letter, Unix milliseconds; missing: when it was stored
//	Swj-Moved                            the message has been replaced by one elsewhere; whoever gets this notice acknowledges it
//	Nats-Msg-Id                          <q>.<level>.<id> and, from generation 1 on, /<generation>
//	Nats-Expected-Last-Subject-Sequence  0, so that a message does not take the place of another one of its id unseen
//
// Other headers, which foreign programs write, are found in Message.Headers. A plain publish of a body to a T subject is a task
// like any other. Who writes a message should expect sequence 0 too, since otherwise it takes the place of one with the same id.
//
// # What it promises
//
//   - Publish returns nil when the stream has stored the message. It is never sent twice by the adapter, except where the server
//     has answered that it did not store it. Concurrent publishes share trips.
//   - While a message is queued, held or delayed, publishing the same or an older generation of its id to the same queue and
//     level is a success that does nothing; a newer generation takes its place, also in the hands of a consumer. For Config.Dedupe
//     after its publication a repeated pair is dropped even when it was handled already.
//     What is delayed lies in another subject than what waits: once Dedupe is over, the same pair published without the time is a
//     second message, until the first comes due and takes its place.
//   - A lost connection is made again for ever. Deliveries outlive it, and a restart of the server: they end with their lease.
//     Settlements without a connection wait for one; the last acknowledgements before a loss are sent again, when
//     the queue's record has shown that its stream is still the same.
//   - The lease of what is held is renewed every third of it. NATS neither tells who has lost a message nor refuses an
//     acknowledgement that comes too late, so each process reckons for itself: what could not be renewed is given up a tenth of the
//     lease before the server hands it to somebody else. A process that was frozen finds all that it held lost. The lease belongs to
//     the consumer on the server and so to all processes together; see Subscribe.
//   - Deliveries is exact.
//   - Ack returns at once and leaves with others; nobody answers. AckSync removes the message from
//     the stream itself, which the server does for one caller only: after a restart or a thaw it may hand a message to two.
//   - Release(0) gives back the same message. Retry, Release after some time, and Update replace a message by another in one
//     step, which fails if the message has been replaced or has gone. Bury stores the dead letter, and then acknowledges.
//   - Delayed messages wait in the server, which fires schedules 250 ms after they came at the earliest, and in groups of 250 ms when
//     they are many. A delay of up to 250 ms is waited for by the consumer that gets the message, exactly.
//   - Find, Delete and Update reach what no consumer has been handed yet. What was given back is not found until it is handed out
//     again, and counts as held in Stats.
//   - The first note of a start of a message is one trip, each further one three. A node is present if it answers, absent if nobody
//     does, and also if it is silent for 3 s while the server answers. A process that was cut off is present with its connection.
//   - What is stored survives a kill of the server. With one replica and the server's default sync_interval of 2 minutes a power
//     failure may lose what came since; "sync_interval: always" or Replicas 3 close that.
//
// A stream, queue or consumer that was deleted is made again by whoever declared or consumes it, with a warning in the log;
// what lay in it is lost, and so are its deliveries. While the connection lasts a subscription notices so when it next asks for
// messages; until then, with its prefetch full, an acknowledgement may hit a message of the same sequence in the new stream.
//
// # Older servers
//
// Servers ignore settings that they do not know. The adapter looks at what they have made of the stream, and says once in the log
// what is missing. Before 2.12 there are no schedules and no batches: a delayed message is then handed to a consumer, which gives
// it back until its time; Stats counts it as ready or held, a change of its time by Update takes effect when it is handed out
// next. A Retry into another queue or level is then two steps: the successor is published, and the delivery acknowledged.
//
// Before 2.11 messages have no time of their own. Notes of starts then lie in a stream SWJNOTES_<namespace>, in which all
// vanishes after 24 h, under subjects that begin with swj.<namespace>.O.W and swj.<namespace>.O.L. The first note makes it.
package natsbroker

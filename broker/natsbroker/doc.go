// Package natsbroker distributes tasks through NATS JetStream, best on nats-server 2.12 or later.
// Servers since 2.9 work too, see below.
//
//	b, err := natsbroker.New(natsbroker.Config{
//		Connect: natsconnect.Config{URLs: []string{"nats://user:password@host"}},
//	})
//
// The package broker/natsbroker/embedded runs such a server within the process. It is passed as
// Config.InProcess of natsconnect.
//
// # Streams and subjects on the server
//
// This is a public format: any program may write and read it.
//
// Each namespace has one stream, SWJ_<namespace>, with work-queue retention and one message for
// each subject (max msgs per subject 1, discard old). Schedules, message TTLs and atomic batches
// are allowed.
//
// Below are its subjects. <q> is the queue's name with '=' for '.'. <id> is the message's id, with
// '=' and two upper-case hex digits for each byte that is not a letter, a digit, '-' or '_'.
//
//	swj.<namespace>.T.<q>.<level>.<id>       a message that waits or is held. Levels count from 0,
//	                                         the most urgent; a queue without levels has only 0.
//	                                         A fair queue has also the lanes <level>f1 to
//	                                         <level>f3, see Swj-Lane
//	swj.<namespace>.S.<q>.<id>               a delayed message: a schedule "@at <time>" with a T
//	                                         subject as its target
//	swj.<namespace>.D.<q>.<id>.<generation>  a dead letter
//	swj.<namespace>.Q.<q>                    the queue's record, JSON: {"levels":[10,100]}, the
//	                                         upper bounds of its levels, and {"levels":{"fair":[]}}
//	                                         for a fair queue. The first is valid for ever
//	swj.<namespace>.M.<q>                    {"removed":n}: messages deleted or purged up to
//	                                         sequence n may be published again; it expires
//	swj.<namespace>.W.<q>.<id>.<generation>  notes of starts of a message, the oldest first; they
//	                                         expire 24 h after the last one
//	swj.<namespace>.L.<node>                 the node, with '=' for '.', has left; expires after 24 h
//
// A stream that an older version has created gets the last two with the first note.
//
// Notes are a JSON list of {"nonce":...,"node":...,"alone":true,"at":n,"verdict":n}. at is the
// start in microseconds since 1970. verdict is 1 for cleared, 2 for died, and missing while it is
// open. A writer of notes expects the sequence that it has read. A node that notes starts answers
// requests on swj.<namespace>.P.<node>, which is in no stream.
//
// The durable pull consumer w_<q>_<level> delivers the messages of a level or lane. Each must be
// acknowledged explicitly. The consumer has no limits.
//
// The body of a message is its payload. Its headers:
//
//	Content-Type          the content type
//	Swj-Generation        decimal; missing: 0
//	Swj-Priority          decimal; missing: 100
//	Swj-Lane              the lane of a message of a fair queue, 1 to 3; missing: 0, which is the
//	                      level itself. A key with many recent messages has a high lane
//	Swj-Expires           Unix milliseconds
//	Swj-Not-Before        Unix milliseconds; the message is not delivered before
//	Swj-Extra             JSON {"ct":...,"h":{name:value},"p":{name:text}}: a content type that
//	                      fits no header, Headers and Properties. A value is {"s":text},
//	                      {"x":base64 of a string}, {"b":base64 of bytes}, {"t":bool},
//	                      {"i":integer} or {"f":"float"}
//	Swj-Reason, Swj-Stack of a dead letter, JSON strings
//	Swj-Attempts          of a dead letter, decimal: the number of ended runs
//	Swj-Died              of a dead letter, Unix milliseconds; missing: when it was stored
//	Swj-Moved             a notice: the message was replaced by one in another subject. A consumer
//	                      that receives the notice acknowledges it
//	Nats-Msg-Id           <q>.<level>.<id> and, from generation 1 on, /<generation>
//	Nats-Expected-Last-Subject-Sequence
//	                      0, so that a message does not replace another one of its id by accident.
//	                      On a fair queue, from server 2.12 on, it is expected of all its lanes
//
// Other headers, which foreign programs write, are in Message.Headers. A plain publish of a body to
// a T subject is a task like any other. A program that writes a message should expect sequence 0
// too. Otherwise it replaces a message with the same id.
//
// # Promises
//
//   - Publish returns nil when the stream has stored the message. The adapter never sends it twice,
//     unless the server has answered that it did not store it. Concurrent publishes share round
//     trips.
//   - While a message is queued, held or delayed, another one with the same id, queue and level is
//     dropped unless its generation is newer. Publish returns nil. A newer generation
//     replaces it, even if a consumer holds it. For Config.Dedupe after its publication a repeated
//     pair is dropped even if it was handled already.
//   - A delayed message has another subject than a waiting one. Once Dedupe is over, the same pair
//     published without the time is a second message, until the first is due and replaces it.
//   - A lost connection is restored until the Broker is closed. Deliveries survive it and a restart
//     of the server: they end with their lease. Settlements without a connection wait for one. The
//     last acknowledgements before a loss are sent again, once the queue's record has shown that
//     its stream is still the same.
//   - The lease of held messages is renewed every third of it. NATS does not report a lost message
//     and does not refuse a late acknowledgement. So each process measures the lease itself. A
//     message whose lease could not be renewed is lost a tenth of the lease before the server
//     delivers it again. A process that was frozen finds all its messages lost. The lease belongs
//     to the consumer on the server and so to all processes together; see Subscribe.
//   - Deliveries is exact.
//   - Ack returns at once. The acknowledgement is sent with others and gets no answer. AckSync
//     removes the message from the stream, which succeeds for one caller only: after a restart or a
//     freeze the server may deliver a message to two.
//   - Release(0) returns the same message to the queue. Retry, Release with a delay, and Update
//     replace a message by another in one atomic step. The step fails if the message was replaced
//     or no longer exists. Dead-lettering stores the dead letter and then acknowledges.
//   - Delayed messages wait in the server. It fires a schedule 250 ms after its arrival at the
//     earliest, and many schedules in groups of 250 ms. A delay of up to 250 ms is waited for by
//     the consumer that receives the message, exactly.
//   - Find, Delete and Update find messages that no consumer has received yet. A message that was
//     returned to the queue is not found until it is delivered again, and counts as held in Stats.
//   - The first note of a start of a message is one round trip, each further one three. A node is
//     present if it answers. It is absent if no process answers, or if it does not answer for 3 s
//     while the server does. A process that was cut off is present again with its connection.
//   - A kill of the server loses no stored message. A power failure may lose the last messages.
//     With one replica and the server's default sync_interval these are the messages of up to 2
//     minutes. "sync_interval: always" or Replicas 3 prevent that.
//
// A stream, queue or consumer that was deleted is created again by a process that declared or
// consumes it, with a warning in the log. Its messages and deliveries are lost. While the
// connection lasts, a subscription notices that when it next asks for messages. Until then, with
// its prefetch full, an acknowledgement may hit a message of the same sequence in the new stream.
//
// # Older servers
//
// Servers ignore settings that they do not know. The adapter checks the resulting stream, and logs
// the missing features once.
//
// Servers before 2.12 have neither schedules nor batches. A delayed message is then delivered to a
// consumer, which returns it until its time. Stats counts it as ready or held. A change of its time
// by Update takes effect at its next delivery. A Retry into another queue or level is then two
// steps: the successor is published, and the delivery acknowledged.
//
// Before 2.11 messages have no expiry. Notes of starts are then in a stream SWJNOTES_<namespace>,
// in which everything expires after 24 h. Its subjects begin with swj.<namespace>.O.W and
// swj.<namespace>.O.L. The first note creates it.
package natsbroker

// Package amqpbroker distributes tasks through RabbitMQ 3.10 or later (AMQP 0-9-1).
//
//	b, err := amqpbroker.New(amqpbroker.Config{
//		Connect: amqpconnect.Config{URLs: []string{"amqp://user:password@host/"}},
//	})
//
// # Names on the server
//
// All names begin with "swj.<namespace>.".
//
//   - q.<queue> is the durable queue behind the default exchange, a quorum queue unless configured
//     otherwise. A queue with priority levels has one queue q.<queue>:p<bound> for each further
//     level. A fair queue has for each of these the lanes :f1 to :f3 too.
//   - levels.<queue> is a stream with the priority levels of a queue and whether it is fair, such
//     as "10,100" or "fair;100". A plain queue has none.
//   - dead.<queue> holds the dead letters, from consumers and from RabbitMQ's delivery limit. If it
//     is full the oldest is dropped.
//   - delay.00 to delay.37 hold delayed messages, each for 2^n milliseconds. If the target queue
//     was deleted meanwhile, the message goes to undeliverable.
//   - starts is a stream with the notes of starts and the answers of nodes: 24 hours, 64 MB. It is
//     created with the first note.
//   - acks is a stream with the notes of AckSync: 24 hours, 256 MB. It is created with the first
//     queue.
//
// Queues that exist with other settings are used as they are, with a warning in the log.
//
// # Promises
//
//   - Publish returns nil when RabbitMQ has confirmed the message and has not returned it as
//     unroutable. The adapter never sends it twice.
//   - A lost connection is restored, with all URLs in turn, until the Broker is closed. Queues,
//     prefetches and consumers are rebuilt. All deliveries of the old channel are lost: their Lost
//     channel is closed and settling them returns broker.ErrLeaseLost. RabbitMQ delivers the
//     messages again.
//   - Deliveries is exact on quorum queues. Before RabbitMQ 4.3 it also counts messages that were
//     returned untouched. On classic queues it is (2, false) after the first delivery.
//   - Ack returns at once. The acknowledgement reaches the server within about a millisecond,
//     together with others. AckSync waits for the server; its comment says what the answer proves.
//     AckedBefore covers the rest.
//   - NoteStart and JudgeStart survive a restart and the loss of a minority of nodes. NodeState
//     takes 2 s to find that a node is absent. During a memory or disk alarm it returns an error.
//     Notes have a separate connection, opened with the first use.
//   - A message that RabbitMQ has delivered can always be released, dead-lettered and requeued,
//     even if Publish would refuse it. A copy never expires on the server: the native expiration
//     moves into a header, and Properties holds it again on delivery.
//   - A delivery is held as long as its channel is open; RabbitMQ has no leases. Its
//     consumer_timeout closes the channel of a consumer that holds a delivery for longer, by
//     default 30 minutes. Raise it for longer tasks.
//   - A memory or disk alarm of the server blocks publishing, but not consuming.
//     Publishing returns broker.ErrBlocked when ctx ends. Consuming has another connection.
//
// Headers that begin with "x-" belong to the server and are never copied. Headers that begin with
// "swj-" belong to the adapter.
package amqpbroker

// Package amqpbroker distributes tasks through RabbitMQ 3.10 or later (AMQP 0-9-1).
//
//	b, err := amqpbroker.New(amqpbroker.Config{Connect: amqpconnect.Config{URLs: []string{"amqp://user:password@host/"}}})
//
// # What lies on the server
//
// All names begin with "swj.<namespace>.". A queue is one durable queue q.<queue> behind the
// default exchange, a quorum queue unless configured otherwise, or with priority levels one queue
// q.<queue>:p<bound> per level. Its dead letters are in dead.<queue>, whether Bury put them there
// or RabbitMQ did, at its delivery limit; a full one drops its oldest. Messages with a time wait in
// 38 queues delay.00 to delay.37, each of which holds everything for 2^n milliseconds; those whose
// queue is gone when their time has come are in undeliverable. Two streams hold notes for 24 hours:
// starts those of starts and the answers of nodes (64 MB), and acks those of AckSync (256 MB). acks
// is made with the first queue, starts with the first note. Queues that exist with other settings
// are used as they are, with a warning in the log.
//
// # What it promises
//
//   - Publish returns nil when RabbitMQ has confirmed the message and has not returned it as unroutable. It is never sent
//     twice by the adapter.
//   - A lost connection is made again for ever, over all URLs; queues, prefetches and consumers are rebuilt. All deliveries
//     of the old channel are lost: their Lost channel is closed and settling them is broker.ErrLeaseLost, while RabbitMQ
//     hands them out again.
//   - Deliveries is exact on quorum queues, where it also counts graceful returns before RabbitMQ 4.3, and (2, false) after
//     the first delivery on classic ones.
//   - Ack returns at once and reaches the server within about a millisecond, together with others. AckSync waits for it;
//     what its answer shows, and what it cannot, is told there. AckedBefore tells of the rest.
//   - NoteStart and JudgeStart survive a restart and the loss of a minority of nodes. NodeState takes 2 s to find that a node is
//     absent; a memory or disk alarm makes it an error. Notes have a connection of their own, opened when it is first used.
//   - A message that RabbitMQ has handed out can always be released, buried and requeued, also one that Publish would refuse.
//     A copy never expires on the server: the native expiration travels in a header and is found in Properties again.
//   - A delivery is held as long as its channel lives; there is no lease. RabbitMQ's consumer_timeout (30 minutes by default)
//     closes the channel of a consumer that holds one for longer: it has to be raised for longer tasks.
//   - Under an alarm of the server publishing is broker.ErrBlocked when the ctx ends; consuming goes on, over its own
//     connection.
//
// Headers that begin with "x-" belong to the server and are never copied, those with "swj-" are the adapter's own.
package amqpbroker

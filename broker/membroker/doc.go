// Package membroker is the broker in memory: for tests, for programs of one process, and as the model for authors of
// adapters.
//
// # The two halves
//
// A [Server] stands where another adapter has a server: it owns the queues, the dead letters and the clock of delayed
// messages. A [Broker] is a connection to it, as a process would have one; several Brokers on one Server are several
// processes. [New] makes both for those who need no more than one.
//
// # The path of a message
//
// Publish finds the queue and, under the queue's mutex, wraps the message in an item and appends it to the ring of its
// priority level. Then dispatch gives waiting receivers what is ready, and the publisher wakes them after it has let go
// of the mutex: at most one wake-up per message, none while receivers are busy, because a busy receiver takes its next
// message from the ring itself. Receive does the same from the other side. Nothing is fetched ahead: a message is held
// from the moment it is handed out, so Prefetch bounds the unsettled deliveries, and the most urgent message is always
// handed out first.
//
// An item lives in exactly one place, its state says where: in a ring, in the heap of those given back (which keep their
// old place, before everything in the ring), in the server's heap of delayed ones, in the list of a subscription's
// unsettled deliveries, or nowhere. The delivery of the first hand-out is part of the item, so that the whole way of a
// message costs one allocation.
//
// # What an author should copy
//
//   - The delivery belongs to a connection epoch. When the connection is lost, its unsettled deliveries are lost with it:
//     one channel per epoch serves Lost of them all, and a settlement afterwards is broker.ErrLeaseLost.
//   - Subscriptions outlive epochs: Receive just goes on waiting.
//   - Settling decides under one lock who was first; everyone else gets broker.ErrSettled.
//   - A repeated (ID, Generation) is one message, and a higher Generation replaces a lower one that waits.
//
// # Notes of starts
//
// The Server keeps them in a map, for 24 h after the last one of a message. A node is present while
// the Broker through which it noted a start has its connection.
//
// # What it does not do
//
// Messages that have expired are handed out: the consumer checks Message.Expires and records it. There are no leases: a
// connection in memory cannot fall silent, so SubscribeOptions.Lease is not used. Nothing survives the process.
package membroker

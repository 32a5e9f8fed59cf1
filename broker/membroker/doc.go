// Package membroker is a broker in memory: for tests, for programs of one process, and as a model
// for authors of adapters.
//
// # Server and Broker
//
// A [Server] takes the place of a server: it owns the queues, the dead letters and the clock of
// delayed messages. A [Broker] is a connection to it, as a process would have one. Several Brokers
// on one Server behave like several processes. [New] creates both for programs that need only one.
//
// # The path of a message
//
// Publish finds the queue. Under the queue's mutex it wraps the message in an item and appends it
// to the ring of its priority level. Then dispatch gives ready messages to waiting receivers, and
// the publisher wakes them after it has freed the mutex. A message causes at most one wake-up. It
// causes none while receivers are busy, because a busy receiver takes its next message from the
// ring itself. Receive does the same from the other side.
//
// Nothing is fetched in advance: a message is held from the moment when Receive returns it. So
// Prefetch limits the unsettled deliveries, and the most urgent message is always delivered first.
//
// An item is in a ring, in one of two heaps, in the list of a subscription's unsettled deliveries,
// or in none of them. One heap holds returned items, which keep their old place, before everything
// in the ring. The other heap holds the server's delayed items. The item's state says in which
// place it is. The first delivery of an item is part of it, so that the whole path of a message
// costs one allocation.
//
// # Rules to copy in an adapter
//
//   - A delivery belongs to one connection. When the connection is lost, its unsettled deliveries
//     are lost too. One channel per connection serves Lost of them all, and later settlements
//     return broker.ErrLeaseLost.
//   - Subscriptions outlive connections: Receive continues to wait.
//   - One lock decides which settlement is the first. Every other one returns broker.ErrSettled.
//   - A repeated (ID, Generation) is one message. A higher Generation replaces a waiting lower one.
//
// # Bounds
//
// The first subscription with bounds starts the load of its queue, which counts the held messages
// of each key. A claim parks the keys at their limits, so that the next claim does not look at them
// again. The end of a delivery unparks its key, and a timer unparks the keys whose rate allows the
// next message. A claim with other bounds than the claim before unparks all keys.
//
// # Notes of starts
//
// The Server keeps them in a map, for 24 h after the last one of a message. A node is present while
// the Broker through which it noted a start is connected.
//
// # Limits
//
// Expired messages are delivered: the consumer checks Message.Expires and records it. Leases do not
// exist, because a connection in memory works until it is cut. SubscribeOptions.Lease is ignored.
// All data ends with the process.
package membroker

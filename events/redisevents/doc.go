// Package redisevents carries events over Redis: through one pub/sub channel, and, where they are kept for late listeners,
// through a stream beside it. It works with a single server, Sentinel and Redis Cluster.
//
// # Layout
//
// These names and forms are public: other programs may read and write them, and later versions of this package will.
//
//	swj:ev:<namespace>           channel    events, as they come
//	swj:ev:{<namespace>}:kept    stream     the kept events; it expires when nothing was added for the retention's age
//	swj:ev:<namespace>:kept      channel    the id of each entry that is added to the stream
//
// A message on the first channel is a list of 1 to 100 events in the wire format of the package events. An entry of the
// stream has the field e, such a list, and before it the field s: how many events were kept so far with this entry, which
// shows a reader how many it missed. Its id is the server's time.
//
// Channels belong to the whole server, not to one of its numbered databases; two buses in two databases of one server
// need two namespaces.
//
// # Where events are lost
//
//   - At the publisher, when more wait than its bounded buffer holds, or the server cannot be reached: [Bus.Dropped].
//     A message whose answer was lost is not sent again, and counts as dropped although it may have arrived.
//   - On the way, without a count, when a connection breaks or no listener is there. A listener makes its subscription
//     again; the events of that time are missed.
//   - At the server, without a count, when it cuts off a listener whose connection does not keep up
//     (client-output-buffer-limit pubsub). Listeners read at once into a buffer of their own, so that only a frozen
//     process or a slow network gets there.
//   - In the listener's own buffer, the oldest events: events.DropCounter of its subscription.
//
// # Kept events
//
// [Config.Retain] keeps events, see [Bus.Replay]. Whole messages are removed, the oldest first, when those after them hold
// Max events, or when they are older than Age; it happens as new ones are kept. A subscription of Replay reads from the
// stream alone and remembers where it is, so that a lost connection costs nothing; a reader that is slower than the
// retention misses what was removed, which its events.DropCounter tells. Where it is depends on the server's clock: after a
// failover that lost entries, to a server whose clock is behind, it misses what comes until that clock has caught up. A server that is out of memory keeps nothing, and
// its listeners hear of the events all the same.
package redisevents

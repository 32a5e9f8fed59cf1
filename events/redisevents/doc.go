// Package redisevents delivers events over Redis through a pub/sub channel. If events are kept for
// late listeners it also writes a stream. The package works with a single server, Sentinel and
// Redis Cluster.
//
// # Layout
//
// These names and forms are public. Other programs may read and write them, and later versions of
// this package will do so.
//
//	swj:ev:<namespace>         channel  all events
//	swj:ev:{<namespace>}:kept  stream   the kept events; expires Age after the last entry
//	swj:ev:<namespace>:kept    channel  the id of each entry that is added to the stream
//
// A message on the first channel is a list of 1 to 100 events in the wire format of package events.
// An entry of the stream has two fields. Field s is the number of events kept so far, including
// this entry; readers count missed events with it. Field e is a list of events. The id of the entry
// is the server's time.
//
// Channels belong to the whole server, not to one of its numbered databases. Two buses in two
// databases of one server therefore need two namespaces.
//
// # Where events are lost
//
//   - At the publisher, if its buffer is full or the server cannot be reached: [Bus.Dropped] counts
//     them. A message whose answer was lost is not sent again. It counts as dropped although it may
//     have arrived.
//   - On the way, without a count, if a connection breaks or no listener exists. A listener
//     subscribes again and misses the events of that time.
//   - At the server, without a count, if it disconnects a slow listener (client-output-buffer-limit
//     pubsub). Listeners read at once into their own buffer, so this happens only to a frozen
//     process or on a slow network.
//   - In the full buffer of a listener, the oldest events: events.DropCounter of its subscription
//     counts them.
//
// # Kept events
//
// [Config.Retain] keeps events, see [Bus.Replay]. Each time a message is kept, the server removes
// the oldest messages if later ones hold Max events or if they are older than Age.
//
// A subscription of Replay reads only the stream and remembers its position, so that a lost
// connection loses no event. A reader that is slower than the retention misses removed events, and
// its events.DropCounter counts them.
//
// The position depends on the server's clock. After a failover that lost entries, to a server whose
// clock is behind, a reader misses events until that clock has caught up. A server that is out of
// memory keeps no events, but its listeners still receive them.
package redisevents

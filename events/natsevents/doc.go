// Package natsevents delivers events over NATS, and keeps them in a JetStream stream if
// [Config.Retain] says so.
//
// A message on the subject swj.<namespace>.ev is a list of up to 100 events in the wire format of
// package events. Its size is limited by [events.BatcherConfig].MaxBytes and the server's
// max_payload. It is published by core NATS, which never waits for listeners. Events are lost in
// these places:
//   - At the publisher, if its buffer is full or the server cannot be reached: [Bus.Dropped] counts
//     them.
//   - On the way, without a count, if a connection breaks or no listener exists. In a cluster,
//     listeners on other servers may miss events for a moment after Subscribe returned.
//   - In a listener's full buffer, the oldest events. events.DropCounter of its subscription counts
//     them. The server disconnects a listener that does not read its connection.
//
// # Kept events
//
// Events of the kept types are also stored in the stream SWJEVENTS_<namespace>. Each event is one
// message on the subject swj.<namespace>.K. A separate goroutine stores them with acknowledgement,
// so that a slow or missing stream delays no live event. At most Batch.Capacity events wait for it,
// and beyond that the oldest are not kept. [Bus.Dropped] counts them and the events that the server
// did not acknowledge. The stream has the limits of Config.Retain. A bus with other limits changes
// them when it opens the stream.
//
// Replay reads the stream with a consumer that the server removes soon after the last read. After a
// lost connection or server it makes a new consumer that continues after the last event.
package natsevents

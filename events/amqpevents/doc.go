// Package amqpevents delivers events over RabbitMQ through one fanout exchange, swj.<namespace>.ev.
// Every listener binds its own queue to it.
//
// A message on the exchange is a list of 1 to 100 events in the wire format of package events. It
// is transient and published without confirmation and without mandatory, because publishing never
// waits for listeners. Events are lost in these places:
//   - At the publisher, if its buffer is full, the broker cannot be reached or it blocks
//     publishers: [Bus.Dropped] counts them.
//   - On the way, without a count, if a connection breaks or no listener exists.
//   - In the queue of a slow listener, the oldest messages: it holds [Config.QueueLength] of them.
//   - In the full buffer of a listener, the oldest events: events.DropCounter of its subscription
//     counts them.
//
// Kept events ([Config.Retain]) are also published to a stream queue, swj.<namespace>.ev.log, in
// messages of the same form. Their header swj-taken holds the time of sending, in milliseconds
// since 1970 by the publisher's clock. The argument since of [Bus.Replay] is compared with it, so
// the clocks of the nodes should agree. The broker confirms each of these messages; [Bus.Unkept]
// counts events of unconfirmed ones.
//
// A stream of Replay reads at its own pace and remembers its position, so that it continues there
// after a reconnect. A stream queue that exists with other arguments is used unchanged, with a
// warning.
//
// A listener's queue ends with its connection. After a reconnect the listener makes a new one and
// misses the events of that time.
package amqpevents

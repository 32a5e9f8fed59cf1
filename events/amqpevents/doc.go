// Package amqpevents carries events over RabbitMQ, through one fanout exchange: swj.<namespace>.ev. Every listener binds a
// queue of its own to it.
//
// A message on the exchange is a list of 1 to 100 events in the wire format of the package events. It is published
// transient, without confirmation and without mandatory: events are lost rather than waited for. Where they are lost:
//   - at the publisher, when more wait than its bounded buffer holds, the broker cannot be reached, or it takes no
//     messages: [Bus.Dropped];
//   - on the way, without a count, when a connection breaks or no listener is there;
//   - in the queue of a listener that does not keep up, the oldest messages: it holds [Config.QueueLength] of them;
//   - in the listener's own buffer, the oldest events: events.DropCounter of its subscription.
//
// What [Config.Retain] keeps goes besides to a stream queue, swj.<namespace>.ev.log, in messages of the same kind, with the
// header swj-taken: when they were sent, in milliseconds since 1970 on the publisher's clock. That is the time which the
// since of [Bus.Replay] is about, so that the clocks of the nodes should agree. Here the broker confirms each message,
// beside the tasks; what it does not confirm is given up and counted by [Bus.Unkept]. A stream of Replay reads at its own
// pace and remembers its place: after a reconnect it goes on there. A stream queue that exists with other arguments is
// used as it is, with a warning.
//
// A listener's queue dies with its connection. It is made again after a reconnect; the events of that time are missed.
package amqpevents

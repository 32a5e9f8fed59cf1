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
// A listener's queue dies with its connection. It is made again after a reconnect; the events of that time are missed.
package amqpevents

// Package natsevents carries events over NATS, and keeps them in a JetStream stream where [Config.Retain] asks for it.
//
// A message on the subject swj.<namespace>.ev is a list of up to 100 events in the wire format of the package events, as large
// as [events.BatcherConfig].MaxBytes and the server's max_payload allow. It is published by core NATS: events are lost rather than
// waited for. Where they are lost:
//   - at the publisher, when more wait than its bounded buffer holds, or the server cannot be reached: [Bus.Dropped];
//   - on the way, without a count, when a connection breaks or no listener is there. In a cluster, listeners of other servers
//     hear a new subscription's first events a moment after Subscribe has returned;
//   - in the listener's own buffer, the oldest events: events.DropCounter of its subscription. The server disconnects a
//     listener that takes nothing from its connection.
//
// # Kept events
//
// Events of the kept types are besides stored in the stream SWJEVENTS_<namespace>, one message for each on the subject
// swj.<namespace>.K, acknowledged and beside the live ones, so that a stream that is slow or away holds up nobody. What waits for it
// is bounded by Batch.Capacity; beyond it the oldest are not kept, and counted by [Bus.Dropped], as is what the server
// did not acknowledge. The stream has the limits of Config.Retain, and is given them when a bus with others is opened.
//
// Replay reads the stream with a consumer that the server forgets soon after the last read, and makes another one after the
// last event it got whenever the connection or the server was lost.
package natsevents

// Package natsresults keeps results in a JetStream stream: they outlive producers, consumers and servers, every process finds
// them by a task's id, and whoever submitted a task is told of its end.
//
// A namespace has one stream, SWJRESULTS_<namespace>, in a file store, with one message for each task: the newest record, on
// the subject swj.<namespace>.R.<id>. Bytes of an id other than letters, digits, '_' and '-' are written as =XX. The body is the
// record in the form of internal/wire; the headers are Nats-TTL, in seconds rounded up, and Swj-TTL in milliseconds where that
// is not exact.
//
//   - Save is a compare-and-set on the sequence of the subject's last message: one trip to the server for the first record of a
//     task and for the next of the same consumer, three when somebody else wrote in between.
//   - The server removes a record when its time is over. It is not found from the moment on, by the server's clock, also
//     where the server is late.
//   - A terminal record is besides published, by core NATS, on swj.<namespace>.N.<node> of the node in ReplyTo. That is a hint:
//     it is lost when the node is not connected at the moment, or does not read. It may still be on its way when Save returns, so that
//     a stream may begin with a record that was saved a moment before Notify. What JetStream keeps is the truth.
//
// Groups are gathered in the same stream, under keys that begin with a space, which no id does:
// " g<group>" holds what is known of a group, five numbers (size, done, failed, decider, largest
// index) and a bit for each member that has arrived; " m<index> <group>" a member's record, for
// twice the group's time, which is shortened when the group is decided; " b<id>" the copy of a task
// that is run. Under " c<key>" is the holder of a key, see [resultstore.Claimer]. All are compared
// and set.
//
// With Config.Replicas above 1 records are read from the stream's leader, since a follower may not have the newest yet.
//
// # Servers
//
// The time of each record needs nats-server 2.11 or newer. An older server is recognised by what it makes of the stream's
// configuration, and a warning is logged: records are then not found any more when their time is over, but the server keeps
// them all for Config.TTL, and none longer.
//
// The server's max_payload, 1 MiB unless configured, bounds a record; see Config.MaxResult. The embedded server of this project
// takes 16 MiB.
package natsresults

// Package natsresults keeps results in a JetStream stream. Results survive the end of producers,
// consumers and servers. Every process can load a result by its task id, and the submitter of a
// task is notified of its end.
//
// Each namespace has one stream, SWJRESULTS_<namespace>, in a file store. It holds one message for
// each task: the newest record, on the subject swj.<namespace>.R.<id>. Bytes of an id other than
// letters, digits, '_' and '-' are written as =XX. The body is the record in the form of
// internal/wire. The header Nats-TTL holds the retention in seconds, rounded up. If that is not
// exact, the header Swj-TTL holds it in milliseconds.
//
//   - Save is a compare-and-set on the sequence of the subject's last message. It makes one round
//     trip to the server for the first record of a task and for the next one of the same consumer.
//     It makes three if another consumer wrote in between.
//   - The server removes an expired record. Load ignores a record as soon as it has expired by the
//     server's clock, even if the server removes it later.
//   - Save also publishes a terminal record by core NATS on swj.<namespace>.N.<node> of the node in
//     ReplyTo. This notification is a hint: it is lost if the node is not connected or does not
//     read. It may arrive after Save returned, so a stream may begin with a record that was saved
//     just before Notify. The record in JetStream is authoritative.
//
// Groups, claims and checkpoints use the same stream. Their keys begin with a space, which is not
// allowed in an id:
//
//   - " g<group>" holds the state of a group: five numbers (size, done, failed, decider, largest
//     index) and a bit for each member that has arrived.
//   - " m<index> <group>" holds a member's record for twice the group's retention, which is
//     shortened when the group is decided.
//   - " b<id>" holds the running copy of a task.
//   - " k<id>" holds the checkpoints of a task, with the fencing token of the attempt that used
//     them last.
//   - " c<key>" holds the holder of a key, see [resultstore.Claimer].
//   - " v<key>" holds the record of a burst, see [resultstore.Swapper].
//
// All of them are written with compare-and-set.
//
// With Config.Replicas above 1 the store reads records from the stream's leader, because a follower
// may not have the newest record yet.
//
// # Servers
//
// A separate retention for each record needs nats-server 2.11 or newer. The store recognises an
// older server by the stream configuration that it returns, and logs a warning. With such a server
// Load still ignores expired records, but the server keeps all records for Config.TTL and no
// longer.
//
// The server's max_payload, 1 MiB by default, limits the size of a record; see Config.MaxResult.
// The embedded server of this project accepts 16 MiB.
package natsresults

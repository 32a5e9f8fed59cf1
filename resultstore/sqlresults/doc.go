// Package sqlresults keeps results in a SQL database: a SQLite file, which any number of processes
// of one machine share, or PostgreSQL 13 and newer. Any process that knows the id of a task can
// load its record, also long after the task ended. A store makes the tables at its first use, and
// newer versions update them.
//
// # Layout
//
// All namespaces of a database share these tables; a further one holds their version:
//
//   - swarmiji_result has a row for each task, with the fencing token, state and end of the record.
//     The record itself is a msgpack map with small integers as keys; reply queues carry the same
//     form.
//   - swarmiji_result_group and swarmiji_result_member hold groups and their ended members, see
//     [resultstore.Gatherer].
//   - swarmiji_result_checkpoint holds the checkpoints of tasks, one row for each task.
//   - swarmiji_result_begun holds the running copies of successors and the holders of claims. See
//     [resultstore.Claimer]. The id of a claim is a space and the key, quoted by
//     strconv.QuoteToASCII. It also holds the records of bursts, see [resultstore.Swapper]. Their
//     ids are " v" and the quoted key.
//
// # Promises
//
// After Save a record is as durable as any commit of the database: with synchronous=FULL for a
// file, and as PostgreSQL's synchronous_commit says. A Save is one statement; on SQLite concurrent
// Saves share one write to the disk.
//
// Saving the same record again changes nothing. If a connection is lost and the outcome of a Save
// is unknown, the store therefore repeats the Save until its ctx ends.
//
// The clock is that of the database: PostgreSQL's server, or the machine of the file. Load ignores
// expired rows at once. Stores that write delete them later, a few hundred at a time: see
// [Config.Sweep].
//
// Notifications come from the table itself. A stream reads the rows that it has not seen when it is
// notified of a change, and every few seconds. A lost connection therefore loses no notification,
// and unread ones use no memory. A stream misses a record only if the record expired or was deleted
// before it was read.
//
// On PostgreSQL LISTEN notifies of changes by other processes. A file is checked a hundred times a
// second while streams are open. PostgreSQL may fail over to a replica that had not received all
// data. A notification may then be missed: the submitter finds the record with Load.
//
// A database that is full or read-only stores no records: Save returns
// [resultstore.ErrUnavailable].
package sqlresults

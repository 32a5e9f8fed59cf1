// Package sqlresults keeps results in a SQL database: in a SQLite file, which any number of processes of one machine share, or in
// PostgreSQL 13 and newer. Any process that knows a task's id finds its record, also long after its end. The tables are made
// when a store is first used, and brought up to date by newer versions.
//
// # Layout
//
// The tables are for all namespaces of a database; a further one keeps their version:
//
//   - swarmiji_result: a row for each task, with the fencing token, state and end of the record, and the record itself as a
//     msgpack map with small integers as keys (the form in which reply queues carry it as well).
//   - swarmiji_result_group and swarmiji_result_member: what is gathered of groups, see [resultstore.Gatherer].
//   - swarmiji_result_begun: which copy of a successor is run, and the holders of keys, see [resultstore.Claimer]. The id of a
//     key is a space and the key in quotes, as strconv.QuoteToASCII has it.
//
// # Promises
//
// A record is kept when Save returned, as durably as the database is configured to keep what is committed: synchronous=FULL for
// a file, and PostgreSQL's synchronous_commit. A Save is one statement; on SQLite those that come at the same moment share one
// write to the disk. Repeating one changes nothing, so the store repeats it by itself, within its ctx, when a connection was
// lost and nobody knows whether the server had committed it.
//
// The clock is the database's: PostgreSQL's server, or the machine that the file is on. What has expired is not found any
// more, at once; the rows are deleted some time later, a few hundred at a time, by the stores that write: see [Config.Sweep].
//
// Notifications come from the table itself, in which a stream looks for what it has not seen: when it is told of a change,
// and every few seconds by itself. So none is lost with a connection, and what nobody receives fills no memory; a stream that
// reads so late that a record has expired or was deleted misses it. On PostgreSQL others' changes are heard of by LISTEN; a
// file is looked at a hundred times a second for as long as streams are open. After a failover of PostgreSQL to a replica that
// had not received all, a notification may be missed: the submitter finds the record with Load.
//
// A database that is full, or read-only, takes no records: Save is [resultstore.ErrUnavailable].
package sqlresults

// Package sqlschedule keeps schedules in a SQL database: in a SQLite file, which any number of processes of one machine share,
// or in PostgreSQL. The tables are made when a store is first used, and brought up to date by newer versions.
//
// There are two tables for all schedules of a database, and a third that keeps their version:
//
//   - swarmiji_schedule_entry: a row for each entry, with its payload's bytes, its next time, whether it is paused, the last tick
//     and what it carries.
//   - swarmiji_schedule_claim: a row for each tick that is claimed, with its owner and the end of its lease.
//
// All times are milliseconds since 1970. What changes an entry is one transaction, which locks the entry's row first; on SQLite
// transactions that come at the same moment share one commit. The clock is the database's: PostgreSQL's server, or the machine
// that the file is on. What is confirmed is on the disk: PostgreSQL's synchronous_commit, and synchronous=FULL of SQLite.
//
// Other processes' changes are heard of by LISTEN on PostgreSQL; a file is looked at ten times a second while somebody watches.
package sqlschedule

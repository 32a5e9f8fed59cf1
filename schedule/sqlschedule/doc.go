// Package sqlschedule stores schedules in a SQL database: in PostgreSQL, or in a SQLite file that
// any number of processes of one machine share. A store creates the tables when it is first used,
// and upgrades the tables of older versions.
//
// A database has three tables for all its schedules, and a fourth table for their version:
//
//   - swarmiji_schedule_entry has a row for each entry: its payload, next due time, pause, last
//     tick and carried state.
//   - swarmiji_schedule_group has a row for each group of entries: its revision.
//   - swarmiji_schedule_claim has a row for each claimed tick: its owner and the end of its lease.
//
// Times are milliseconds since 1970. The clock is that of the PostgreSQL server, or of the machine
// with the SQLite file.
//
// Each change of an entry is one transaction that first locks the entry's row. On SQLite,
// transactions at the same time share one commit. Confirmed changes are on disk: see
// synchronous_commit of PostgreSQL; SQLite uses synchronous=FULL.
//
// PostgreSQL notifies stores of other processes' changes with LISTEN. A SQLite file is checked ten
// times a second while [Store.Watch] is in use.
package sqlschedule

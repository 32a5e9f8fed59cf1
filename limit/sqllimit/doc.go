// Package sqllimit stores limits in a SQL database, for all processes with the same namespace: a
// SQLite file, which any number of processes of one machine share, or PostgreSQL 13 and newer.
//
//	db, err := sqlite.Open("/var/lib/app.db", sqlite.Config{})
//	limiter, err := sqllimit.New(sqllimit.Config{DB: db})
//
// The first call creates the tables, whose names begin with "swarmiji_limit". The files in
// internal/sqlconn/migrations/limits document their columns. A held permit is a row, and so is a
// rate that is in use. Calls of Acquire delete the rows of ended leases and unused rates, a limited
// number at a time.
//
// # Promises
//
//   - Leases and rates follow the clock of the database: the PostgreSQL server, or the machine of
//     the file.
//   - On PostgreSQL a call of Acquire is a transaction of four to five round trips, and Release is
//     one round trip. Calls for the same key wait for each other. They take the locks of several
//     keys in one order.
//   - A transaction on PostgreSQL does not wait for the disk. If the server crashes, permits of its
//     last second are lost, and more than Max may be held until their runs end or renew them.
//   - A process that is frozen in a transaction on PostgreSQL holds the locks of its keys for up to
//     30 s, the idle_in_transaction_session_timeout of its session.
package sqllimit

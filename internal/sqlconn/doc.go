// Package sqlconn is what all SQL adapters share: one way to a SQLite file or a PostgreSQL database, transactions that are
// repeated where that is safe, migrations, wake-ups, and errors with a class.
//
// # Two dialects, one way to speak
//
// A statement has parameters $1, $2 .. in both dialects. Times are integers, microseconds since 1970 in UTC ([Micros],
// [Time]); [Dialect.Now] is the database's own clock as an expression. What else differs is the adapter's to spell out, by
// [Conn.Dialect].
//
// # Transactions
//
// [Conn.Update] runs a function in a transaction that may write, and returns nil when it is committed to disk. The function
// may run more than once: a transaction that was surely not committed (a lost connection, a deadlock, a neighbour in the
// group that spoilt it) begins anew. So it sets what it returns at each run, and does nothing that a repetition would harm.
// An error of a statement dooms the transaction, also if the function returns nil. In a transaction, rows are closed before
// the next statement.
//
// SQLite has one writer. Concurrent calls are therefore coalesced: whatever waits when a commit ends goes into the next one,
// each function between two savepoints so that its error is its own, and all of them share one write to the disk. A function
// that is slow holds up the others. PostgreSQL runs transactions beside each other and lets concurrent commits share a write
// by itself, so that each call has a connection of its own there; to share one would make a transaction wait for the round
// trips, and the locks, of another.
//
// # Errors
//
// An error has a class beside its cause: see [ErrUnavailable] and its neighbours. The rule that a caller can rely on: with
// [ErrIndeterminate] the transaction may have been committed, with all others it was not. No error holds a password or a URL.
package sqlconn

// Package sqlconn is the common base of the SQL adapters. It connects to a SQLite file or a
// PostgreSQL database. It provides transactions, which it repeats where that is safe, migrations,
// notifications, and errors with a class.
//
// # Dialects
//
// A statement has the parameters $1, $2 and so on in both dialects. Times are integers,
// microseconds since 1970 in UTC ([Micros], [Time]). [Dialect.Now] is an expression for the
// database's own clock. The adapter writes all other differences itself, by [Conn.Dialect].
//
// The name of a table begins with "swarmiji_" and comes after a blank. On PostgreSQL the schema is
// put in front of it.
//
// # Transactions
//
// [Conn.Update] runs a function in a transaction that may write. It returns nil when the
// transaction is committed to the disk.
//
// The function may run more than once. A transaction that was surely not committed is repeated:
// after a lost connection, after a deadlock, or after a failure of another function in its batch.
// So the function must set its results in each run, and a repetition must do no harm. A transaction
// on PostgreSQL that needs longer than Timeout ([Config]) is not repeated.
//
// An error of a statement makes the transaction fail, even if the function returns nil. In a
// transaction, close rows before the next statement.
//
// SQLite has one writer. So concurrent calls share commits (group commit): all calls that wait when
// a commit ends are part of the next one. Each function runs inside a savepoint, so that its error
// affects only its own call. All of them share one write to the disk. A slow function delays the
// others. After 50 ms of functions no other begins; the remaining calls wait for the next commit.
//
// PostgreSQL runs transactions concurrently, and lets concurrent commits share a write itself. So
// each call has its own connection there. On a shared connection, a transaction would wait for the
// round trips and the locks of another.
//
// # Errors
//
// An error has a class and a cause, see [ErrUnavailable] and the following variables. After
// [ErrIndeterminate] the transaction may have been committed. After any other error it was not
// committed. Errors contain no password and no URL.
package sqlconn

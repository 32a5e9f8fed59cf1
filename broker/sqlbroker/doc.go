// Package sqlbroker distributes tasks through a SQL database: PostgreSQL 13 and later, or a SQLite
// file.
//
//	db, err := sqlite.Open("/var/lib/app.db", sqlite.Config{})
//	b, err := sqlbroker.New(sqlbroker.Config{DB: db})
//
// The first call creates the tables, whose names begin with "swarmiji_". The files in
// internal/sqlconn/migrations document their columns.
//
// # Promises
//
//   - A confirmed message is committed to the disk of the database.
//   - A message is a row, and it stays until it is settled. A claim gives it to a consumer until
//     its lease ends on the database's clock. Every settlement names the random token of its claim,
//     so a late one returns broker.ErrLeaseLost.
//   - A repeated (ID, Generation) of a message that is queued, delayed or held is one message.
//   - Retry and DeadLetter are one transaction each. Retry may name any queue of the database.
//   - Publish, settlements and claims of concurrent callers share transactions. No timer collects
//     them: what waits during a transaction is part of the next one.
//   - A waiting consumer is notified of new messages by PostgreSQL's NOTIFY or by a change of the
//     file. It also checks every Config.Poll. So a lost notification delays messages and loses
//     none.
//   - After a lost connection a claim may have been executed without an answer. The consumer looks
//     for its messages for some seconds. After that they are delivered again when the lease ends.
//   - While a long transaction of any session keeps very many removed messages in PostgreSQL, a
//     consumer may find released messages and ended leases some seconds later.
//   - A fair queue has a table of its own. Each process gives the keys of a level turns, and a new
//     key waits at most one round of the keys with messages.
//   - Stats counts rows. Its time grows with the number of messages in the queue.
//   - The limits of dead letters are applied at each read. A Broker also applies them after it has
//     put a hundredth part of DeadMax letters. So a queue may have a few more for a time.
//
// The clock of the database decides about times and leases. If it is set forward by more than a
// lease, leases end and the held messages are delivered again. If it is set back, the messages that
// were published before wait until it shows the time of their publication again.
//
// A file needs a local disk, since SQLite shares memory between its processes. Only one process
// writes at a time.
package sqlbroker

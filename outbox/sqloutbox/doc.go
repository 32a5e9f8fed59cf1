// Package sqloutbox stores messages in a table of the user's database, in the user's transaction:
// PostgreSQL 13 and later, or a SQLite file. A relay of package outbox publishes them.
//
//	db, err := postgres.Open("postgres://user:password@host/database", postgres.Config{})
//	store, err := sqloutbox.New(sqloutbox.Config{DB: db})
//
// The first call creates the tables, whose names begin with "swarmiji_outbox". Call Prepare at the
// start of the program: on a SQLite file the tables cannot be created while a transaction of the
// program writes. The files in internal/sqlconn/migrations/outbox document the columns.
//
// # In the user's transaction
//
// PublishTx first checks the transaction, so that no statement of this package makes it fail.
// Parameters are strings, int64 and []byte only, so that any client library can carry them. The
// role of the transaction needs INSERT and SELECT on swarmiji_outbox. A message with the id of one
// that another open transaction stores waits for the end of that transaction.
//
// # Relays
//
// Messages become visible when their transactions commit, not in the order of their numbers. So a
// relay remembers no position: it reads from the beginning of each of its buckets, and deletes sent
// messages. One statement reads a page. So if it sees a message of a key, it sees all messages that
// were committed before the transaction of that message began.
//
// A relay is woken by changes of a SQLite file. On PostgreSQL the writer sends notifications on its
// own connection, 5, 50 and 500 ms after PublishTx. A relay also reads by itself, after 50 ms when
// it was busy, and each second when it was idle.
package sqloutbox

package sqloutbox

import (
	"context"
	"errors"
	"fmt"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/sqlconn"
	"github.com/swarmiji/swarmiji/outbox"
)

// Store is an outbox in a SQL database. Create it with [New]. Safe for concurrent use.
type Store struct {
	cfg   Config
	conn  *sqlconn.Conn
	topic string // relays are notified of it
	text  *texts
}

var (
	_ broker.TxPublisher = (*Store)(nil)
	_ outbox.Store       = (*Store)(nil)
	_ outbox.Inspector   = (*Store)(nil)
)

// New checks the configuration, sets its defaults and returns a Store. It returns all problems as
// one joined error. It does not connect: the first call that needs the database does, and creates
// the tables.
func New(cfg Config) (*Store, error) {
	err := cfg.check()
	conn, connErr := sqlconn.Of(cfg.DB, "outbox")
	if connErr == nil && !conn.Shared() {
		connErr = errors.New("a database in memory has no transactions of others; name a file")
	}
	if connErr != nil {
		connErr = fmt.Errorf("sqloutbox: %w", connErr)
	}
	if err := errors.Join(err, connErr); err != nil {
		return nil, err
	}
	return &Store{cfg: cfg, conn: conn, topic: "outbox " + cfg.Namespace, text: newTexts(conn.Dialect())}, nil
}

// Prepare creates or updates the tables and waits for the database until ctx ends. The first call
// of another method does it too. After a success it returns nil at once.
//
// Call it before the first transaction with messages. A SQLite file has one writer, so the tables
// cannot be created while a transaction of the program writes.
func (s *Store) Prepare(ctx context.Context) error { return wrap(s.conn.Ready(ctx), "prepare") }

// update prepares the tables and runs fn in a transaction. It waits for the database. It returns
// the error of fn or of the database as wrap changes it; what names the operation.
func (s *Store) update(ctx context.Context, what string, fn sqlconn.Func) error {
	if err := s.Prepare(ctx); err != nil {
		return err
	}
	return wrap(s.conn.Update(ctx, fn), what)
}

// view prepares the tables and runs fn, which only reads. It waits for the database. It returns the
// error of fn or of the database as wrap changes it; what names the operation.
func (s *Store) view(ctx context.Context, what string, fn sqlconn.Func) error {
	if err := s.Prepare(ctx); err != nil {
		return err
	}
	return wrap(s.conn.View(ctx, fn), what)
}

// Watch implements [outbox.Store]: changed receives a value when messages may have been committed.
// stop ends that. It does not wait for the database.
func (s *Store) Watch() (changed <-chan struct{}, stop func()) {
	w := s.conn.Watch(0, s.topic)
	return w.C(), w.Close
}

// Close waits for running calls. It leaves the database open. Relays of the Store end with
// broker.ErrClosed. If ctx ends first, Close returns ctx's error. Further calls do nothing.
func (s *Store) Close(ctx context.Context) error { return s.conn.Close(ctx) }

// wrap adds to err the operation what and the matching error of package broker, such as
// ErrUnavailable. An error without a match gets only the operation. It returns nil for nil.
func wrap(err error, what string) error {
	if err == nil {
		return nil
	}
	var class error
	switch sqlconn.Class(err) {
	case sqlconn.ErrIndeterminate: //nolint:errorlint // Class returns the sentinel itself
		class = broker.ErrIndeterminate
	case sqlconn.ErrUnavailable, sqlconn.ErrConflict:
		class = broker.ErrUnavailable
	case sqlconn.ErrFull:
		class = broker.ErrBlocked
	case sqlconn.ErrAccess, sqlconn.ErrNewerSchema, sqlconn.ErrCorrupt, sqlconn.ErrRefused:
		class = broker.ErrAccess
	case sqlconn.ErrClosed:
		class = broker.ErrClosed
	case sqlconn.ErrForeign:
		class = broker.ErrUnsupported
	default:
		return fmt.Errorf("outbox %s: %w", what, err)
	}
	return fmt.Errorf("outbox %s: %w: %w", what, class, err)
}

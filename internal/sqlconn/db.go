package sqlconn

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/swarmiji/swarmiji/capability"
	"github.com/swarmiji/swarmiji/sqldb"
	"github.com/swarmiji/swarmiji/task"
)

// DB is a database that adapters share: its connections, its notifications and its tables. It
// implements [sqldb.DB]. It connects at first use and replaces lost connections, until Close. Safe
// for concurrent use.
type DB struct {
	db      Database
	wake    *Wakes
	backoff task.Backoff

	identity atomic.Value // string, see isOwn
	granted  sync.Map     // of type grant: privileges that roles of callers have
}

var _ sqldb.DB = (*DB)(nil)

// Open returns the database of cfg. It does not connect. Its error lists all faults of cfg.
func Open(d Driver, cfg Config) (*DB, error) {
	cfg, err := cfg.complete()
	db, noDB := d.Open(cfg)
	if err := errors.Join(err, noDB); err != nil {
		return nil, err
	}
	return &DB{db: db, wake: newWakes(db.Watch), backoff: cfg.Backoff}, nil
}

// Of returns a Conn for an adapter whose tables are those of component. db comes from the
// configuration of the adapter. Returns an error if db is nil or is not a [DB].
func Of(db sqldb.DB, component string) (*Conn, error) {
	d, ok := capability.As[*DB](db)
	if !ok || d == nil {
		return nil, errors.New("sql: DB must come from Open of package sqldb/postgres or sqldb/sqlite")
	}
	return d.Conn(component), nil
}

// Conn returns a Conn for an adapter. component names the tables that [Conn.Ready] creates.
func (d *DB) Conn(component string) *Conn {
	c := &Conn{db: d, component: component, watchers: make(map[*Watcher]struct{})}
	c.reminder = newReminder(func(topics []string) {
		for _, t := range topics {
			d.wake.Foreign(t) // also to the functions of Listen: the change is not one of this Conn
		}
		d.db.Tell(topics)
	})
	c.life, c.end = context.WithCancel(context.Background())
	return c
}

// Close implements [sqldb.DB]. It waits for running calls, ends the watchers and closes all
// connections. It is idempotent. If ctx ends earlier, Close returns the error of ctx, and the
// remaining steps continue in the background.
func (d *DB) Close(ctx context.Context) error {
	// The database is closed even if ctx has ended; it then ends in the background.
	return cmp.Or(d.wake.close(ctx), d.db.Close(ctx))
}

// Func is a function to run in a transaction or a view. ctx is derived from the caller's. tx is
// invalid after the function returns.
type Func func(ctx context.Context, tx *Tx) error

// Conn is the use of a [DB] by one adapter. Safe for concurrent use.
type Conn struct {
	db        *DB
	component string
	life      context.Context // ends with Close
	end       context.CancelFunc
	reminder  *reminder // for transactions of callers

	mu       sync.Mutex
	ready    bool // the tables have the newest version
	closed   bool
	running  sync.WaitGroup // calls
	watchers map[*Watcher]struct{}
}

// Dialect returns the kind of the database.
func (c *Conn) Dialect() Dialect { return c.db.db.Dialect() }

// Shared reports whether other processes can use the database. It is false only for a database in
// memory.
func (c *Conn) Shared() bool { return c.db.db.Shared() }

// Interval returns the pause before a call is repeated, after attempt failures beyond the first.
func (c *Conn) Interval(attempt int) time.Duration { return c.db.backoff.Interval(attempt) }

// Update runs fn in a transaction that may write. If fn returns nil, it commits the transaction to
// the disk. If fn returns an error, it rolls back and returns this error unchanged.
//
// fn may run more than once, one run at a time, in the caller's goroutine. See the package comment
// for the consequences. If the database is down or locked, Update waits until ctx ends or the Conn
// is closed.
func (c *Conn) Update(ctx context.Context, fn Func) error { return c.write(ctx, Whole, fn) }

// Single is Update for a function that runs one statement. PostgreSQL then needs one round trip
// instead of three. If the connection is lost during the statement, Single returns
// [ErrIndeterminate].
//
// If fn returns an error after a successful statement, PostgreSQL does not undo the statement. So
// fn must return only the errors of the statement.
func (c *Conn) Single(ctx context.Context, fn Func) error { return c.write(ctx, Single, fn) }

// Relaxed is Single for a change that may be undone if the computer or the PostgreSQL server
// crashes within a second. SQLite then does not wait for the disk, unless another call shares the
// commit. PostgreSQL waits for it unless the statement sets synchronous_commit. A later commit of
// another kind makes the change durable.
func (c *Conn) Relaxed(ctx context.Context, fn Func) error { return c.write(ctx, Relaxed, fn) }

// write runs fn in a transaction of this kind. After the commit it notifies the watchers of the
// topics, in this and other processes. Returns ErrClosed after Close, and otherwise the error of
// Database.Update. It takes c.mu, but not while it waits.
func (c *Conn) write(ctx context.Context, kind Kind, fn Func) error {
	if err := c.begin(); err != nil {
		return err
	}
	defer c.running.Done()
	topics, err := c.db.db.Update(ctx, c.life, kind, fn)
	if len(topics) > 0 && err == nil {
		c.db.wake.own(topics, c)
		c.db.db.Tell(topics)
	}
	return err
}

// View runs fn, which only reads. Its statements do not share a transaction. Each statement sees
// the data that was committed before it. fn may run more than once.
func (c *Conn) View(ctx context.Context, fn Func) error {
	if err := c.begin(); err != nil {
		return err
	}
	defer c.running.Done()
	return c.db.db.View(ctx, c.life, fn)
}

// begin counts a call, which must call c.running.Done at its end. Returns the error of Closed after
// Close. It takes c.mu.
func (c *Conn) begin() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return Closed()
	}
	c.running.Add(1)
	return nil
}

// Close ends the use of the database by this adapter: later calls return [ErrClosed], and so do
// calls that wait for PostgreSQL. It removes the watchers and waits for running calls. It leaves
// the database open. It is idempotent. Returns the error of ctx if ctx ends earlier. It takes c.mu,
// but does not hold it while it waits.
func (c *Conn) Close(ctx context.Context) error {
	c.mu.Lock()
	c.closed = true
	watchers := c.watchers
	c.watchers = nil
	c.mu.Unlock()
	c.end()
	c.reminder.close()
	for w := range watchers {
		c.db.wake.remove(w)
	}
	ended := make(chan struct{})
	go func() {
		c.running.Wait()
		close(ended)
	}()
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

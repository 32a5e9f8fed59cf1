package sqlconn

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"sync/atomic"
)

// Conn is a database. It connects at first use and replaces lost connections, until Close. Safe for
// concurrent use.
type Conn struct {
	db       Database
	wake     *Wakes
	ring     *ring        // for transactions of callers
	identity atomic.Value // string, see isOwn

	mu     sync.Mutex
	closed bool
}

// Func is a function to run in a transaction or a view. ctx is derived from the caller's. tx is
// invalid after the function returns.
type Func func(ctx context.Context, tx *Tx) error

// New returns a Conn for cfg. It does not connect. Its error lists all faults of cfg.
func New(cfg Config) (*Conn, error) {
	cfg, err := cfg.complete()
	driver, noDriver := cfg.driver()
	var db Database
	if noDriver == nil {
		db, noDriver = driver.Open(cfg)
	}
	if err := errors.Join(err, noDriver); err != nil {
		return nil, err
	}
	c := &Conn{db: db, wake: newWakes(db.Watch)}
	c.ring = newRing(func(topics []string) {
		for _, t := range topics {
			c.wake.Foreign(t) // also to the functions of Listen: the change is not one of this Conn
		}
		c.db.Tell(topics)
	})
	return c, nil
}

// Dialect returns the kind of the database.
func (c *Conn) Dialect() Dialect { return c.db.Dialect() }

// Shared reports whether other processes can use the database. It is false only for a database in
// memory.
func (c *Conn) Shared() bool { return c.db.Shared() }

// Update runs fn in a transaction that may write. If fn returns nil, it commits the transaction to
// the disk. If fn returns an error, it rolls back and returns this error unchanged.
//
// fn may run more than once, one run at a time, in the caller's goroutine. See the package comment
// for the consequences. If the database is down or locked, Update waits until ctx ends.
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

func (c *Conn) write(ctx context.Context, kind Kind, fn Func) error {
	if err := c.open(); err != nil {
		return err
	}
	topics, err := c.db.Update(ctx, kind, fn)
	if len(topics) > 0 && err == nil {
		c.tell(topics)
	}
	return err
}

// tell notifies the watchers of topics in all processes.
func (c *Conn) tell(topics []string) {
	c.wake.topics(topics)
	c.db.Tell(topics)
}

// View runs fn, which only reads. Its statements do not share a transaction. Each statement sees
// the data that was committed before it. fn may run more than once.
func (c *Conn) View(ctx context.Context, fn Func) error {
	if err := c.open(); err != nil {
		return err
	}
	return c.db.View(ctx, fn)
}

// open returns nil, or the error of Closed after Close. It takes c.mu.
func (c *Conn) open() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return Closed()
	}
	return nil
}

// Close waits for running calls, ends the watchers and closes all connections. It is idempotent. If
// ctx ends earlier, Close returns the error of ctx, and the remaining steps continue in the
// background. It takes c.mu, but does not hold it while it waits.
func (c *Conn) Close(ctx context.Context) error {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.ring.close()
	// The database is closed even if ctx has ended; it then ends in the background.
	return cmp.Or(c.wake.close(ctx), c.db.Close(ctx))
}

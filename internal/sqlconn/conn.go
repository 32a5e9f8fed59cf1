package sqlconn

import (
	"context"
	"sync"
)

// Conn is a database. It is opened when it is first used, and mends lost connections, until Close. All methods may be called
// from any goroutine.
type Conn struct {
	plan plan
	db   database
	wake *wakes

	mu     sync.Mutex
	closed bool
}

// database is what differs between the two kinds.
type database interface {
	// update runs fn in a transaction and returns the topics that it named, if it was committed.
	update(ctx context.Context, single bool, fn Func) ([]string, error)
	view(ctx context.Context, fn Func) error
	// migrate runs fn, which brings a component's tables up to date, as update does.
	migrate(ctx context.Context, component string, fn Func) error
	// tell tells other processes of topics, some time soon. watch is what wakes this process's watchers for the others'
	// changes, until ctx ends.
	tell(topics []string)
	watch(ctx context.Context, w *wakes)
	close(ctx context.Context) error
}

// Func is what runs in a transaction or a view. ctx is the caller's, tx ends when it returns.
type Func func(ctx context.Context, tx *Tx) error

// New checks the configuration. It opens nothing.
func New(cfg Config) (*Conn, error) {
	p, err := cfg.check()
	if err != nil {
		return nil, err
	}
	c := &Conn{plan: p}
	if p.dialect == Postgres {
		c.db = newPostgres(p)
	} else {
		c.db = newLite(p)
	}
	c.wake = newWakes(c.db.watch)
	return c, nil
}

// Dialect is the kind of the database.
func (c *Conn) Dialect() Dialect { return c.plan.dialect }

// Shared reports whether other processes can use the database: all but one in memory.
func (c *Conn) Shared() bool { return c.plan.dialect == Postgres || c.plan.file != "" }

// Update runs fn in a transaction that may write. Nil: it is committed, and on the disk. fn may run more than once, one run at
// a time and in the caller's goroutine; see the package comment for what that asks of it. An error of fn rolls back and is returned as
// it is. A database that is down or locked is waited for until ctx ends.
func (c *Conn) Update(ctx context.Context, fn Func) error { return c.write(ctx, false, fn) }

// Single is Update for a function that runs one statement, which costs PostgreSQL one round trip in place of three. A lost
// connection in the middle of it is [ErrIndeterminate]. An error that fn returns after a statement that succeeded does not
// undo it on PostgreSQL, so fn returns those of the statement alone.
func (c *Conn) Single(ctx context.Context, fn Func) error { return c.write(ctx, true, fn) }

func (c *Conn) write(ctx context.Context, single bool, fn Func) error {
	if err := c.open(); err != nil {
		return err
	}
	topics, err := c.db.update(ctx, single, fn)
	if len(topics) > 0 && err == nil {
		c.wake.topics(topics)
		c.db.tell(topics)
	}
	return err
}

// View runs fn, which only reads. Each statement sees what was committed before it; there is no transaction around them.
// fn may run more than once.
func (c *Conn) View(ctx context.Context, fn Func) error {
	if err := c.open(); err != nil {
		return err
	}
	return c.db.view(ctx, fn)
}

func (c *Conn) open() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return &failure{ErrClosed, errClosed}
	}
	return nil
}

// Close waits for what is under way, ends watchers and closes all connections. It is idempotent. When ctx ends before, its
// error is returned, and the rest ends by itself.
func (c *Conn) Close(ctx context.Context) error {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	if err := c.wake.close(ctx); err != nil {
		return err
	}
	return c.db.close(ctx)
}

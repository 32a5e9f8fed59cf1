package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// rawSQL is the bare client of a database, with one connection. Its table has the keys that
// Swarmiji's has: messages are found by due time and are unique by queue and id. A claim sets the
// end of a lease and a token, and the deletion names both.
type rawSQL struct {
	cfg  *config
	db   rawDB
	body []byte // as many bytes as a task of Swarmiji has
	ids  atomic.Uint64

	mu sync.Mutex // one call at a time uses the connection
}

// rawDB runs the statements of rawSQL in the dialect of a database. Each method is one transaction,
// which is on disk when the method returns.
type rawDB interface {
	// schema returns the statements that create the table and its index.
	schema() []string
	// exec runs a statement without parameters.
	exec(ctx context.Context, text string) error
	// insert adds messages with these ids and bodies to the queue.
	insert(ctx context.Context, queue string, ids []string, bodies [][]byte) error
	// claim gives the first n free messages of the queue to the token.
	claim(ctx context.Context, queue string, token int64, n int) (ids []string, bodies [][]byte, err error)
	// settle removes claimed messages and returns how many there were.
	settle(ctx context.Context, queue string, token int64, ids []string) (int, error)
	// count returns the number of messages in the queue.
	count(ctx context.Context, queue string) (int, error)
	close(ctx context.Context) error
}

// rawLease is the time for which a claim holds its messages, the same as Swarmiji's default.
const rawLease = 30 * time.Second

func dialRawSQL(ctx context.Context, cfg *config, connect func(context.Context, *config) (rawDB, error)) (client, error) {
	size, err := bodySize(ctx, cfg)
	if err != nil {
		return nil, err
	}
	c := &rawSQL{cfg: cfg, body: make([]byte, size-stampSize)}
	c.ids.Store(rand.Uint64() >> 32) // another process fills the queue as well
	if c.db, err = connect(ctx, cfg); err != nil {
		return nil, fmt.Errorf("connect to %s: %w", cfg.address(), err)
	}
	return c, nil
}

// declare creates the table. The queue is a column of it.
func (c *rawSQL) declare(ctx context.Context) error {
	for _, text := range c.db.schema() {
		if err := c.db.exec(ctx, text); err != nil {
			return err
		}
	}
	return nil
}

// insert adds n tasks in one statement.
func (c *rawSQL) insert(ctx context.Context, n int) error {
	ids, bodies := make([]string, n), make([][]byte, n)
	for i := range n {
		ids[i] = fmt.Sprintf("%s%016x", someID[:20], c.ids.Add(1))
		bodies[i] = append(stamped(stampSize), c.body...)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.db.insert(ctx, c.cfg.Queue, ids, bodies)
}

func (c *rawSQL) submit(ctx context.Context) error { return c.insert(ctx, 1) }

func (c *rawSQL) submitAll(ctx context.Context, n int) error {
	for ; n > 0; n -= window {
		if err := c.insert(ctx, min(n, window)); err != nil {
			return err
		}
	}
	return nil
}

func (c *rawSQL) call(context.Context) error {
	return fmt.Errorf("the bare client of %s has no round trips", c.cfg.address())
}

func (c *rawSQL) serve(ctx context.Context, seen func([]byte)) error {
	n := max(c.cfg.Prefetch, 1)
	for ctx.Err() == nil {
		done, err := c.take(n, seen)
		if err != nil {
			return err
		}
		if done == 0 {
			select {
			case <-time.After(idlePoll):
			case <-ctx.Done():
			}
		}
	}
	return nil
}

// take claims up to n tasks, handles and removes them, and returns their number.
func (c *rawSQL) take(n int, seen func([]byte)) (int, error) {
	ctx := context.Background() // entries in progress are completed
	token := rand.Int64()
	c.mu.Lock()
	defer c.mu.Unlock()
	ids, bodies, err := c.db.claim(ctx, c.cfg.Queue, token, n)
	if err != nil || len(ids) == 0 {
		return 0, err
	}
	for _, b := range bodies {
		seen(b)
	}
	gone, err := c.db.settle(ctx, c.cfg.Queue, token, ids)
	if err == nil && gone != len(ids) {
		err = fmt.Errorf("%d tasks were removed, %d claimed", gone, len(ids))
	}
	return gone, err
}

func (c *rawSQL) left(ctx context.Context) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.db.count(ctx, c.cfg.Queue)
}

func (c *rawSQL) remove(ctx context.Context) error { return emptyTable(ctx, c.cfg, "bench_raw") }

func (c *rawSQL) close(ctx context.Context) error { return c.db.close(ctx) }

// emptyTable removes all rows of a table, so that the next run finds it as if it were new. The
// database must be for benchmarks only.
func emptyTable(ctx context.Context, cfg *config, table string) error {
	connect := connectPostgres
	if cfg.technology() == techSQLite {
		connect = connectSQLite
	}
	db, err := connect(ctx, cfg)
	if err != nil {
		return err
	}
	defer func() { _ = db.close(ctx) }() // no statement is in progress
	for _, text := range []string{"DELETE FROM " + table, "VACUUM"} {
		if err := db.exec(ctx, text); err != nil {
			return err
		}
	}
	return nil
}

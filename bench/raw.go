package main

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"
)

// The common parts of the bare clients. Each client is used as efficiently as possible for each
// workload, with the guarantees that Swarmiji gives.

// dialRaw makes the bare client of the broker's technology.
func dialRaw(ctx context.Context, cfg *config) (client, error) {
	switch cfg.technology() {
	case techAMQP:
		return dialRawAMQP(ctx, cfg)
	case techRedis:
		return dialRawRedis(ctx, cfg)
	case techHworker:
		return dialRawHworker(ctx, cfg)
	case techNATS:
		return dialRawNATS(ctx, cfg)
	case techPostgres:
		return dialRawSQL(ctx, cfg, connectPostgres)
	case techSQLite:
		return dialRawSQL(ctx, cfg, connectSQLite)
	}
	return nil, fmt.Errorf("there is no bare client for %s", cfg.address())
}

// someID has the length of a task's id.
const someID = "0190d6a4-7b1c-7e4e-8f2a-0123456789ab"

// window limits the unconfirmed messages of one sending goroutine.
const window = 1000

// resultTTL is the retention of a result, the same as Swarmiji's default.
const resultTTL = 24 * time.Hour

// calls holds the round trips in progress.
type calls struct {
	mu   sync.Mutex
	last int
	open map[string]chan struct{}
}

// begin returns the id of a new call and a channel that end closes.
func (c *calls) begin() (id string, done chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open == nil {
		c.open = make(map[string]chan struct{})
	}
	c.last++
	id, done = strconv.Itoa(c.last), make(chan struct{})
	c.open[id] = done
	return id, done
}

// end ends a call by closing its channel. It ignores calls that have ended already.
func (c *calls) end(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if done := c.open[id]; done != nil {
		close(done)
		delete(c.open, id)
	}
}

// await waits until done is closed or ctx ends.
func await(ctx context.Context, done <-chan struct{}) error {
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("no reply: %w", ctx.Err())
	}
}

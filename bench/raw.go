package main

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"
)

// What the bare clients share. Each is used as well as it can be for each workload, with the guarantees that Swarmiji gives.

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
	}
	return nil, fmt.Errorf("there is no bare client for %s", cfg.address())
}

// someID is as long as a task's id.
const someID = "0190d6a4-7b1c-7e4e-8f2a-0123456789ab"

// window is how many messages may be unconfirmed when many are sent by one goroutine.
const window = 1000

// resultTTL is how long a result is kept, as by Swarmiji's default.
const resultTTL = 24 * time.Hour

// calls are round trips under way.
type calls struct {
	mu   sync.Mutex
	last int
	open map[string]chan struct{}
}

// begin returns the id of a new call and what is closed at its end.
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

// end ends a call. One that has ended is left alone.
func (c *calls) end(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if done := c.open[id]; done != nil {
		close(done)
		delete(c.open, id)
	}
}

// await waits for the end of a call.
func await(ctx context.Context, done <-chan struct{}) error {
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("no reply: %w", ctx.Err())
	}
}

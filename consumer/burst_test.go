package consumer_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/resultstore/memresults"
	"github.com/swarmiji/swarmiji/task"
)

// unreadableStore is a result store whose next reads fail.
type unreadableStore struct {
	*memresults.Store
	fails atomic.Int64
}

func (s *unreadableStore) Load(ctx context.Context, id task.ID) (resultstore.Record, error) {
	if s.fails.Add(-1) >= 0 {
		return resultstore.Record{}, resultstore.ErrUnavailable
	}
	return s.Store.Load(ctx, id)
}

// TestSupersededStaysSo shows that a task that a newer one of its key has superseded does not start
// after errors of the result store. Promises: one task of WithLatest at a time.
func TestSupersededStaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var store *unreadableStore
		b := newTable(t, func(c *consumer.Config) {
			store = &unreadableStore{Store: c.Results.(*memresults.Store)}
			c.Results = store
		})
		// Its record is in a store that the consumer does not know, as if it had expired.
		lost := memresults.New(memresults.Config{})
		p, err := producer.New(producer.Config{Broker: b.server.Connect(), Results: b.store, Bursts: lost})
		must0(t, err)
		old, err := echo.Submit(t.Context(), p, 1, task.WithLatest("key"))
		must0(t, err)
		newest := b.submit(2, task.WithLatest("key"))

		store.fails.Store(2)
		b.run()
		if _, err := old.Get(t.Context()); !errors.Is(err, task.ErrRevoked) {
			t.Errorf("the superseded task ended with %v, want ErrRevoked", err)
		}
		if v, err := newest.Get(t.Context()); v != 2 || err != nil || b.runs.Load() != 1 {
			t.Errorf("the newest task ended with %d, %v; %d tasks ran, want 1", v, err, b.runs.Load())
		}
		b.end()
		must0(t, p.Close(t.Context()))
		must0(t, lost.Close(t.Context()))
	})
}

// silentBursts is a store of bursts that does not answer before answers is closed.
type silentBursts struct {
	resultstore.Swapper
	answers chan struct{}
}

func (s silentBursts) wait(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-s.answers:
		return nil
	}
}

func (s silentBursts) Value(ctx context.Context, key string) ([]byte, error) {
	if err := s.wait(ctx); err != nil {
		return nil, err
	}
	return s.Swapper.Value(ctx, key)
}

func (s silentBursts) Swap(ctx context.Context, key string, old, next []byte, ttl time.Duration) ([]byte, error) {
	if err := s.wait(ctx); err != nil {
		return nil, err
	}
	return s.Swapper.Swap(ctx, key, old, next, ttl)
}

// TestSilentStoreOfBursts shows that other tasks of the queue start soon although the store of
// bursts does not answer. The task of the burst runs when the store answers again.
func TestSilentStoreOfBursts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answers := make(chan struct{})
		b := newTable(t, func(c *consumer.Config) {
			c.Bursts = silentBursts{c.Results.(*memresults.Store), answers}
			c.Queues = map[string]consumer.QueueConfig{"default": {Workers: 1, Prefetch: 8}}
		})
		burst, plain := b.submit(1, task.WithLatest("key")), b.submit(2)
		b.run()
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if v, err := plain.Get(ctx); v != 2 || err != nil || b.runs.Load() != 1 {
			t.Errorf("the plain task ended with %d, %v; %d tasks ran, want 1", v, err, b.runs.Load())
		}
		close(answers)
		if v, err := burst.Get(t.Context()); v != 1 || err != nil || b.runs.Load() != 2 {
			t.Errorf("the task of the burst ended with %d, %v; %d tasks ran, want 2", v, err, b.runs.Load())
		}
		b.end()
	})
}

package consumer_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/broker/membroker"
	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/events/memevents"
	"github.com/swarmiji/swarmiji/internal/endtoend"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/resultstore/memresults"
)

// spawner is a pool that runs each handler on its own goroutine.
type spawner struct{ runs *atomic.Int64 }

func (p spawner) Do(_ context.Context, fn func()) error {
	p.runs.Add(1)
	done := make(chan struct{})
	go func() {
		defer close(done)
		fn()
	}()
	<-done
	return nil
}

// TestRoadWithAPool (S8) runs the end-to-end cases with a user's pool.
func TestRoadWithAPool(t *testing.T) {
	t.Parallel() // its cases mostly wait
	var runs atomic.Int64
	endtoend.Run(t, func(t *testing.T) *endtoend.Harness {
		server := membroker.NewServer(membroker.Config{})
		results := memresults.New(memresults.Config{})
		bus := memevents.New(memevents.Config{})
		return &endtoend.Harness{
			Broker:  func(*testing.T) broker.Broker { return server.Connect() },
			Results: func(*testing.T) resultstore.ResultStore { return results.View() },
			Events:  func(*testing.T) events.EventBus { return bus },
			Sever:   func(_ *testing.T, b broker.Broker) { server.Disconnect(b.(*membroker.Broker)) },
			Pool:    spawner{&runs},
		}
	})
	if runs.Load() == 0 {
		t.Error("the pool was never asked")
	}
}

// shared is a pool that limits the handlers of several consumers together.
type shared chan struct{}

func (p shared) Do(ctx context.Context, fn func()) error {
	select {
	case p <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-p }()
	fn()
	return nil
}

// TestPoolBounds shows that tasks that wait for the pool are reserved, and are given back when the
// consumer pauses or stops.
func TestPoolBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHolding(t, consumer.QueueConfig{Workers: 4}, func(c *consumer.Config) { c.Pool = make(shared, 1) })
		h.submit(0, 10)
		h.b.run()
		synctest.Wait()
		if s := h.b.c.Stats(); s.Active != 1 || s.Reserved != 3 {
			t.Errorf("%+v", s)
		}
		must0(t, h.b.c.Pause())
		synctest.Wait()
		if s := h.b.c.Stats(); s.Active != 1 || s.Reserved != 0 {
			t.Errorf("paused: %+v", s)
		}
		h.want(1, 9)
		must0(t, h.b.c.Resume())
		close(h.release)
		if n := len(h.runs()); n != 10 || h.most != 1 {
			t.Errorf("%d runs, %d at once", n, h.most)
		}
		h.b.end()
	})
}

var errNoRoom = errors.New("no room")

// refuser is a pool that refuses tasks until a time.
type refuser struct {
	until time.Time
	asked *atomic.Int64
}

func (p refuser) Do(_ context.Context, fn func()) error {
	p.asked.Add(1)
	if time.Now().Before(p.until) {
		return errNoRoom
	}
	fn()
	return nil
}

// TestPoolRefuses shows that refused tasks are given back at a slow pace and without a count as
// crashes.
func TestPoolRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int64
		h := newHolding(t, consumer.QueueConfig{Workers: 2}, func(c *consumer.Config) { c.Pool = refuser{time.Now().Add(10 * time.Second), &asked} })
		close(h.release)
		h.submit(0, 3)
		h.b.run()
		time.Sleep(time.Minute)
		if n := len(h.runs()); n != 3 || asked.Load() > 220 {
			t.Errorf("%d runs after the pool was asked %d times", n, asked.Load())
		}
		if n := h.b.metrics.Crashes.Count(); n != 0 {
			t.Errorf("%d crashes", n)
		}
		h.b.end()
	})
}

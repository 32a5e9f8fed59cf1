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
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/resultstore/memresults"
	"github.com/swarmiji/swarmiji/task"
)

var _ = errors.New

// claimsAway is a store of claims whose answers can get lost.
type claimsAway struct {
	*memresults.Store
	pass func() error
}

func (s *claimsAway) Pass(ctx context.Context, key, from, to string, ttl time.Duration) error {
	if err := s.Store.Pass(ctx, key, from, to, ttl); err != nil {
		return err
	}
	return s.pass()
}

var _ resultstore.Claimer = (*claimsAway)(nil)

// TestUnique shows that of three submissions with one unique key only the first one runs, although
// the store of claims fails to store its outcome.
func TestUnique(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTable(t, nil)
		ca := &claimsAway{Store: b.store, pass: func() error { return resultstore.ErrUnavailable }}
		p, err := producer.New(producer.Config{Broker: b.server.Connect(), Results: b.store, Claimer: ca})
		must0(t, err)
		b.run()
		var ids [3]task.ID
		for i := range ids {
			f, err := echo.Submit(t.Context(), p, 1, task.WithUnique("k", time.Hour))
			if err != nil {
				t.Fatal(err)
			}
			ids[i] = f.ID()
			time.Sleep(10 * time.Minute)
		}
		if ids[0] != ids[1] || ids[1] != ids[2] || b.runs.Load() != 1 {
			t.Errorf("%v, %d runs", ids, b.runs.Load())
		}
		_ = p.Close(t.Context())
		b.end()
	})
}

// TestStopWhileEarlyUnsettled shows that a stop loses no task while at-most-once tasks wait for
// early slots and the store comes back during the grace period.
func TestStopWhileEarlyUnsettled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var started atomic.Int64
		b := newTable(t, func(c *consumer.Config) {
			c.Results = flakyStore{c.Results, time.Now().Add(20 * time.Second), resultstore.ErrUnavailable}
			c.Queues = map[string]consumer.QueueConfig{"default": {Workers: 2, Prefetch: 4}}
		})
		def := task.New[int, int]("pay", task.WithIdempotent(false))
		must0(t, def.Handle(b.c, func(_ context.Context, i int) (int, error) { started.Add(1); return i, nil }))
		var fs []*task.Future[int]
		for i := range 20 {
			f, err := def.Submit(t.Context(), b.p, i)
			must0(t, err)
			fs = append(fs, f)
		}
		b.run()
		time.Sleep(5 * time.Second)
		n := started.Load()
		begin := time.Now()
		if err := b.stop(); err != nil {
			t.Errorf("Run: %v", err)
		}
		s := b.stats(t)
		t.Logf("%d started; the stop took %v; %+v", n, time.Since(begin), s)
		if int64(s.Ready)+n != 20 || started.Load() != n || s.Held != 0 {
			t.Errorf("%d started, %+v", started.Load(), s)
		}
		_ = fs
		_ = b.p.Close(t.Context())
		_ = b.store.Close(t.Context())
	})
}

// TestVerdictsPausedAndCut shows that no message stays held after the connection is cut and the
// queue is paused, while suspects wait for verdicts.
func TestVerdictsPausedAndCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var conn *membroker.Broker
		b := newTable(t, func(c *consumer.Config) { conn = c.Broker.(*membroker.Broker) })
		var fs []*task.Future[int]
		other := b.server.Connect()
		fs = append(fs, b.submit(1, task.WithID("s")))
		b.takeOnce(t)
		if _, err := other.NoteStart(t.Context(), "default", broker.Start{ID: "s", Nonce: "n", Node: "dead", At: time.Now()}); err != nil {
			t.Fatal(err)
		}
		_ = other.Close(t.Context())
		b.run()
		for i := range 10 {
			time.Sleep(5 * time.Second)
			b.server.Disconnect(conn)
			time.Sleep(time.Second)
			if i%2 == 0 {
				must0(t, b.c.Pause())
				time.Sleep(time.Second)
				must0(t, b.c.Resume())
			}
			fs = append(fs, b.submit(i+2))
		}
		for _, f := range fs {
			if _, err := f.Get(t.Context()); err != nil {
				t.Error(err)
			}
		}
		synctest.Wait() // a future has its result before the message is acknowledged
		if b.metrics.Crashes.Count() != 1 {
			t.Errorf("%d crashes", b.metrics.Crashes.Count())
		}
		if s := b.stats(t); s.Held != 0 || s.Dead != 0 {
			t.Errorf("%+v", s)
		}
		b.end()
	})
}

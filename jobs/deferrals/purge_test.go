package deferrals_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/deferral"
	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/jobs/jobstore"
	"github.com/swarmiji/swarmiji/jobs/memjobs"
)

// muchToPurge is a store that always has more expired deferrals until left is false.
type muchToPurge struct {
	jobs.Store
	left *atomic.Bool
}

func (s muchToPurge) Update(ctx context.Context, fn func(context.Context, jobstore.Tx) error) error {
	purges := false
	err := s.Store.Update(ctx, func(ctx context.Context, tx jobstore.Tx) error {
		return fn(ctx, purging{tx, s.left, &purges})
	})
	if purges {
		time.Sleep(10 * time.Millisecond)
	}
	return err
}

type purging struct {
	jobstore.Tx
	left   *atomic.Bool
	purges *bool
}

func (t purging) ExpireDeferrals(ctx context.Context, by time.Time, limit int) (int, error) {
	*t.purges = true
	n, err := t.Tx.ExpireDeferrals(ctx, by, limit)
	if t.left.Load() && err == nil {
		n = limit
	}
	return n, err
}

// TestPurgeDelaysNoAnswer shows that answers are delivered while many expired deferrals are
// deleted.
func TestPurgeDelaysNoAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory, err := memjobs.New(memjobs.Config{})
		if err != nil {
			t.Fatal(err)
		}
		var left atomic.Bool
		left.Store(true)
		s, err := jobs.New(jobs.Config{Store: muchToPurge{memory, &left}})
		if err != nil {
			t.Fatal(err)
		}
		d := kept(t, s)
		sub, err := d.Subscribe(t.Context(), []string{"q"}, broker.SubscribeOptions{})
		if err != nil {
			t.Fatal(err)
		}
		received := make(chan time.Time, 1)
		go func() {
			if got, err := sub.Receive(t.Context()); err != nil || got.Ack(t.Context()) != nil {
				t.Errorf("received %v, %v", got, err)
			}
			received <- time.Now()
		}()
		a := deferral.Attempt{Queue: "q", Name: "ask", Task: "t1", State: []byte("{}")}
		if _, err := d.Defer(t.Context(), a, "k", time.Hour); err != nil {
			t.Fatal(err)
		}
		time.Sleep(90 * time.Second)
		answered := time.Now()
		if _, err := s.Complete(t.Context(), "ask", "k", 1); err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(time.Minute, func() { left.Store(false) })
		if took := (<-received).Sub(answered); took > time.Second {
			t.Errorf("the answer is handed out after %v", took)
		}
		for _, c := range []interface{ Close(context.Context) error }{sub, s, memory} {
			if err := c.Close(t.Context()); err != nil {
				t.Error(err)
			}
		}
	})
}

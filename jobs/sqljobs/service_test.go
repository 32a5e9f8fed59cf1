package sqljobs_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/jobs/jobstore"
)

// TestServiceUnderContention runs commands of all kinds by many callers on the same few jobs. No
// transaction fails, as it would after a deadlock. At the end every sequence has one job that may
// run, and every waiting parent has an open child.
func TestServiceUnderContention(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, dsn string) {
		t.Parallel()
		s, err := jobs.New(jobs.Config{Store: open(t, dsn)})
		if err != nil {
			t.Fatal(err)
		}
		ctx := bound(t)
		const callers, commands = 12, 60
		var newest atomic.Int64
		newest.Store(1)
		var all sync.WaitGroup
		for n := range callers {
			all.Go(func() {
				c := &caller{Service: s, r: rand.New(rand.NewPCG(uint64(n), 1)), newest: &newest}
				for range commands {
					err := c.command(ctx)
					if err != nil && !errors.Is(err, jobstore.ErrState) && !errors.Is(err, jobstore.ErrNotFound) && !errors.Is(err, jobstore.ErrNoJob) && !errors.Is(err, jobstore.ErrStale) {
						t.Error(err)
					}
				}
			})
		}
		all.Wait()
		if err := s.Close(ctx); err != nil {
			t.Error(err)
		}
		rest, err := s.Rows(ctx, jobs.Filter{})
		if err != nil {
			t.Fatal(err)
		}
		checkTurns(t, rest)
	})
}

// caller runs random commands.
type caller struct {
	*jobs.Service
	r      *rand.Rand
	newest *atomic.Int64
}

// id returns the id of one of the newest jobs.
func (c *caller) id() jobstore.ID { return jobstore.ID(max(1, c.newest.Load()-c.r.Int64N(20))) }

func (c *caller) create(ctx context.Context, spec jobs.Spec) error {
	spec.Name = fmt.Sprint("n", c.r.IntN(3))
	if c.r.IntN(2) == 0 {
		spec.RetryAfter = "+0 SECONDS" // so that it soon runs again and fails
	}
	made, err := c.Create(ctx, spec)
	if err == nil {
		c.newest.Store(int64(made.ID))
	}
	return err
}

func (c *caller) command(ctx context.Context) error {
	switch c.r.IntN(14) {
	case 0, 1:
		return c.create(ctx, jobs.Spec{SequenceKey: fmt.Sprint("k", c.r.IntN(2))})
	case 2:
		return c.create(ctx, jobs.Spec{})
	case 3, 4:
		return c.create(ctx, jobs.Spec{Parent: c.id()})
	case 5:
		_, err := c.CreateAll(ctx, []jobs.Spec{
			{Name: "one", Unique: true},
			{Name: "two", Unique: true, Parent: c.id(), Data: fmt.Appendf(nil, `{"n":%d}`, c.r.IntN(100))},
			{Name: "s", SequenceKey: "k1"},
		})
		return err
	case 6, 7, 8:
		out, err := c.Get(ctx, jobs.Request{Selector: jobstore.Selector{Pattern: "*"}, Max: 1 + c.r.IntN(4), Lease: time.Second})
		for _, h := range out {
			if c.r.IntN(3) == 0 {
				err = errors.Join(err, c.GiveBack(ctx, h))
			}
		}
		return err
	case 9, 10:
		return c.Finish(ctx, jobs.Finish{ID: c.id()})
	case 11:
		return c.Fail(ctx, jobs.Fail{ID: c.id()})
	case 12:
		return []func() error{
			func() error { return c.Delete(ctx, c.id()) },
			func() error { return c.Cancel(ctx, c.id()) },
			func() error { return c.Requeue(ctx, []jobstore.ID{c.id(), c.id(), c.id()}, "") },
		}[c.r.IntN(3)]()
	default:
		return c.Retry(ctx, jobs.Retry{ID: c.id()})
	}
}

func checkTurns(t *testing.T, all []jobstore.Row) {
	t.Helper()
	turns, waiting, children := map[string]int{}, map[string]int{}, map[jobstore.ID]int{}
	for _, j := range all {
		switch j.State {
		case jobstore.Queued, jobstore.Running, jobstore.RunQueued, jobstore.Paused:
			turns[j.SequenceKey]++
			children[j.Parent]++
		case jobstore.Waiting:
			waiting[j.SequenceKey]++
		default:
		}
	}
	for key, n := range turns {
		if key != "" && n > 1 {
			t.Errorf("%d jobs of the key %s have the turn", n, key)
		}
	}
	for key, n := range waiting {
		if turns[key] == 0 {
			t.Errorf("%d jobs of the key %s wait, and none has the turn", n, key)
		}
	}
	for _, j := range all {
		if j.State == jobstore.Paused && j.Parent == 0 && children[j.ID] == 0 {
			t.Errorf("job %d waits for no child", j.ID)
		}
	}
	if len(all) == 0 {
		t.Error("nothing was made")
	}
}

package memjobs_test

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/swarmiji/swarmiji/jobs/jobstest"
	"github.com/swarmiji/swarmiji/jobs/jobstore"
	"github.com/swarmiji/swarmiji/jobs/memjobs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t testing.TB) *memjobs.Store {
	t.Helper()
	s, err := memjobs.New(memjobs.Config{})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestStore(t *testing.T) {
	jobstest.Run(t, func(t testing.TB) *jobstest.Harness {
		s := open(t)
		return &jobstest.Harness{
			Open:     func(testing.TB) jobstore.Store { return s.Join() },
			Promises: jobstest.Promises{Take: true, Drop: true, Weigh: true},
			Slack:    50 * time.Millisecond,
			Report:   "../../docs/capabilities/jobs-memory.json",
		}
	})
}

func save(t testing.TB, s jobstore.Store, j jobstore.Row) jobstore.ID {
	t.Helper()
	if err := s.Update(t.Context(), func(ctx context.Context, tx jobstore.Tx) error { return tx.Save(ctx, &j) }); err != nil {
		t.Fatal(err)
	}
	return j.ID
}

func count(t testing.TB, s jobstore.Store) (n int) {
	t.Helper()
	if err := s.View(t.Context(), func(ctx context.Context, tx jobstore.Tx) error {
		found, err := tx.All(ctx, jobstore.Page{})
		n = len(found)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return n
}

var simple = jobstore.Row{Job: jobstore.Job{Name: "a", State: jobstore.Queued, Data: []byte("{}")}}

func TestAPanicUndoes(t *testing.T) {
	t.Parallel()
	s := open(t)
	for name, end := range map[string]func(){"panic": func() { panic("of the function") }, "goexit": runtime.Goexit} {
		done := make(chan struct{})
		go func() {
			defer close(done)
			defer func() { _ = recover() }()
			_ = s.Update(context.Background(), func(ctx context.Context, tx jobstore.Tx) error {
				j := simple
				if err := tx.Save(ctx, &j); err != nil {
					return err
				}
				end()
				return nil
			})
		}()
		<-done
		if n := count(t, s); n != 0 {
			t.Errorf("%s: %d jobs are there", name, n)
		}
	}
	if err := s.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestATransactionThatHasEnded(t *testing.T) {
	t.Parallel()
	s := open(t)
	for name, run := range map[string]func(context.Context, func(context.Context, jobstore.Tx) error) error{"Update": s.Update, "View": s.View} {
		var kept jobstore.Tx
		if err := run(t.Context(), func(_ context.Context, tx jobstore.Tx) error { kept = tx; return nil }); err != nil {
			t.Fatal(err)
		}
		if _, err := kept.Get(t.Context(), 1); !errors.Is(err, jobstore.ErrClosed) {
			t.Errorf("%s: Get after the end: %v", name, err)
		}
	}
}

func TestWhatAViewDoesNot(t *testing.T) {
	t.Parallel()
	s := open(t)
	id := save(t, s, simple)
	for name, call := range map[string]func(ctx context.Context, tx jobstore.Tx) error{
		"Save":   func(ctx context.Context, tx jobstore.Tx) error { return tx.Save(ctx, &jobstore.Row{}) },
		"Delete": func(ctx context.Context, tx jobstore.Tx) error { return tx.Delete(ctx, id) },
		"Lock":   func(ctx context.Context, tx jobstore.Tx) error { return tx.Lock(ctx, "a") },
	} {
		if err := s.View(t.Context(), call); !errors.Is(err, jobstore.ErrUnsupported) {
			t.Errorf("%s in a View: %v", name, err)
		}
	}
	if n := count(t, s); n != 1 {
		t.Errorf("%d jobs are there", n)
	}
}

func TestWhatIsAskedWrongly(t *testing.T) {
	t.Parallel()
	s := open(t)
	for name, call := range map[string]func(ctx context.Context, tx jobstore.Tx) error{
		"no limit": func(ctx context.Context, tx jobstore.Tx) error {
			_, err := tx.Due(ctx, jobstore.Due{}, 0)
			return err
		},
		"a limit below": func(ctx context.Context, tx jobstore.Tx) error {
			_, err := tx.All(ctx, jobstore.Page{Limit: -1})
			return err
		},
		"take none": func(ctx context.Context, tx jobstore.Tx) error {
			_, _, err := tx.(jobstore.Taker).Take(ctx, jobstore.Due{}, 0, 0)
			return err
		},
		"lease backward": func(ctx context.Context, tx jobstore.Tx) error {
			_, _, err := tx.(jobstore.Taker).Take(ctx, jobstore.Due{}, 1, -1)
			return err
		},
	} {
		if err := s.Update(t.Context(), call); !errors.Is(err, jobstore.ErrBadJob) {
			t.Errorf("%s: %v", name, err)
		}
	}
	err := s.Update(t.Context(), func(ctx context.Context, tx jobstore.Tx) error {
		j := simple
		j.ID = 4711
		return tx.Save(ctx, &j)
	})
	if !errors.Is(err, jobstore.ErrNotFound) || count(t, s) != 0 {
		t.Errorf("Save over a job that is not there: %v, %d jobs", err, count(t, s))
	}
}

// TestInABubble shows that the store works with the clock of a synctest bubble.
func TestInABubble(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := open(t)
		j := simple
		j.Due = time.Now().Add(time.Hour)
		save(t, s, j)
		take := func() (n int) {
			if err := s.Single(t.Context(), func(ctx context.Context, tx jobstore.Tx) error {
				taken, _, err := tx.(jobstore.Taker).Take(ctx, jobstore.Due{Selector: jobstore.Selector{Pattern: "*"}}, 1, time.Minute)
				n = len(taken)
				return err
			}); err != nil {
				t.Fatal(err)
			}
			return n
		}
		if take() != 0 {
			t.Error("taken before its time")
		}
		c, err := s.Coming(t.Context(), time.Time{}, 0)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(c.Next.Sub(c.Now))
		if take() != 1 {
			t.Error("not taken at the time that was said to be the next")
		}
		// A transaction waits on a channel, until its ctx ends.
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := s.Update(t.Context(), func(context.Context, jobstore.Tx) error {
			return s.View(ctx, func(ctx context.Context, tx jobstore.Tx) error { _, err := tx.Now(ctx); return err })
		}); !errors.Is(err, jobstore.ErrUnavailable) {
			t.Errorf("a View within an Update: %v", err)
		}
	})
}

func TestItsClock(t *testing.T) {
	t.Parallel()
	at := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	s, err := memjobs.New(memjobs.Config{Now: func() time.Time { at = at.Add(-time.Second); return at }})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Update(t.Context(), func(ctx context.Context, tx jobstore.Tx) error {
		first, err := tx.Now(ctx)
		if err != nil {
			return err
		}
		if second, err := tx.Now(ctx); err != nil || second.Before(first) || first.Year() != 2029 {
			t.Errorf("%v after %v, %v", second, first, err)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// TestNoWatcherCostsNothing shows that commits collect no notifications without watchers.
func TestNoWatcherCostsNothing(t *testing.T) {
	s := open(t)
	j := simple
	j.Due = time.Now()
	j.ID = save(t, s, j)
	ctx := context.Background()
	update := func() {
		if err := s.Update(ctx, func(ctx context.Context, tx jobstore.Tx) error { return tx.Save(ctx, &j) }); err != nil {
			t.Error(err)
		}
	}
	without := testing.AllocsPerRun(100, update)
	calls := 0
	stop := s.Watch(func([]string) { calls++ })
	defer stop()
	with := testing.AllocsPerRun(100, update)
	if without > with || without > 8 {
		t.Errorf("%v allocations without a watcher, %v with one", without, with)
	}
	if calls > 0 {
		t.Errorf("%d wake-ups for a Due that did not change", calls)
	}
}

// TestModel compares jobs.Service with a model of its rules, under a simulated clock. One store is
// complete; the other has no optional interfaces and runs each function twice.
func TestModel(t *testing.T) {
	for name, wrap := range map[string]func(jobstore.Store) jobstore.Store{
		"as it is": func(s jobstore.Store) jobstore.Store { return s },
		"by steps": func(s jobstore.Store) jobstore.Store { return jobstest.Bare(jobstest.Again(s)) },
	} {
		t.Run(name, func(t *testing.T) {
			var offset atomic.Int64
			base := time.Now()
			s, err := memjobs.New(memjobs.Config{Now: func() time.Time { return base.Add(time.Duration(offset.Load())) }})
			if err != nil {
				t.Fatal(err)
			}
			jobstest.Model(t, jobstest.ModelConfig{
				Open:    func(testing.TB) jobstore.Store { return wrap(s) },
				Advance: func(d time.Duration) { offset.Add(int64(d)) },
			})
		})
	}
}

// TestCrowd runs concurrent callers that use the same jobs.
func TestCrowd(t *testing.T) {
	s := open(t)
	jobstest.Crowd(t, jobstest.CrowdConfig{Open: func(testing.TB) jobstore.Store { return jobstest.Again(s.Join()) }, Commands: 100})
}

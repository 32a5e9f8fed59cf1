package sqljobs_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/deferral"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/jobs/deferrals"
	"github.com/swarmiji/swarmiji/task"
)

// withIsolation creates a database with this default isolation level and returns its URL.
func withIsolation(t *testing.T, level string) (dsn string) {
	t.Helper()
	p, name := testserver.RequirePostgres(t), testserver.Namespace()
	dsn, err := p.Database(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Exec(t.Context(), "postgres", "ALTER DATABASE "+name+" SET default_transaction_isolation = '"+level+"'"); err != nil {
		t.Fatal(err)
	}
	return dsn
}

// TestOtherIsolationLevels shows that keys work in a database with another default isolation level.
// Two processes create jobs with the same keys. Each unique key gets one job, and each sequence one
// job that may run.
func TestOtherIsolationLevels(t *testing.T) {
	for _, level := range []string{"repeatable read", "serializable"} {
		t.Run(level, func(t *testing.T) {
			dsn := withIsolation(t, level)
			services := []*jobs.Service{serviceOf(t, open(t, dsn)), serviceOf(t, open(t, dsn))}
			keys := 50
			if testserver.IsThorough() {
				keys = 200
			}
			for i := range keys {
				key := fmt.Sprint("k", i)
				var taken atomic.Int32
				var both sync.WaitGroup
				for _, s := range services {
					both.Go(func() {
						_, err := s.Create(bound(t), jobs.Spec{Name: "work", UniqueKey: key, SequenceKey: key + "/unique"})
						switch {
						case errors.Is(err, jobs.ErrKeyTaken):
							taken.Add(1)
						case err != nil:
							t.Error(err)
						}
						if _, err := s.Create(bound(t), jobs.Spec{Name: "work", SequenceKey: key}); err != nil {
							t.Error(err)
						}
					})
				}
				both.Wait()
				if n := taken.Load(); n != 1 {
					t.Errorf("%d of 2 jobs of one unique key are refused", n)
				}
			}
			all, err := services[0].List(bound(t), jobs.Filter{})
			if err != nil {
				t.Fatal(err)
			}
			turns := map[string]int{}
			for i := range all {
				if all[i].State == jobs.Queued {
					turns[all[i].SequenceKey]++
				}
			}
			if len(all) != 3*keys || len(turns) != 2*keys {
				t.Errorf("%d jobs have the turn of %d keys", len(all), len(turns))
			}
			for key, n := range turns {
				if n != 1 {
					t.Errorf("%d jobs have the turn of %s", n, key)
				}
			}
		})
	}
}

// TestOtherIsolationLevel shows that an answer reaches its task if it arrives while the task is
// deferred. Transactions of the database are repeatable reads by default.
func TestOtherIsolationLevel(t *testing.T) {
	dsn := withIsolation(t, "repeatable read")
	service := func() *jobs.Service {
		s, err := jobs.New(jobs.Config{Store: open(t, dsn), Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := s.Close(context.Background()); err != nil {
				t.Error(err)
			}
		})
		return s
	}
	consumer, answerer := service(), service()
	waiting, err := deferrals.New(deferrals.Config{Jobs: consumer})
	if err != nil {
		t.Fatal(err)
	}
	lost := 0
	for i := range 50 {
		a := deferral.Attempt{Queue: "q", Name: "ask", Task: task.ID(fmt.Sprint("t", i)), State: []byte("{}")}
		key := fmt.Sprint("k", i)
		var status deferral.Status
		var receipt jobs.Receipt
		var both sync.WaitGroup
		both.Go(func() {
			var err error
			if status, err = waiting.Defer(bound(t), a, key, time.Hour); err != nil {
				t.Error(err)
			}
		})
		both.Go(func() {
			var err error
			if receipt, err = answerer.Complete(bound(t), "ask", key, 1); err != nil {
				t.Error(err)
			}
		})
		both.Wait()
		if receipt.Kind == jobs.Early && !status.Answered {
			lost++
		}
	}
	if lost > 0 {
		t.Errorf("%d of 50 answers are kept as early ones, although their tasks wait for them", lost)
	}
}

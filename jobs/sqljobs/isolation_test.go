package sqljobs_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/deferral"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/jobs/deferrals"
	"github.com/swarmiji/swarmiji/task"
)

// TestOtherIsolationLevel: in a database whose transactions are repeatable reads by default, an answer
// that comes while its task is deferred is given to the task all the same.
func TestOtherIsolationLevel(t *testing.T) {
	p, name := testserver.RequirePostgres(t), testserver.Namespace()
	for _, text := range []string{"CREATE DATABASE " + name, "ALTER DATABASE " + name + " SET default_transaction_isolation = 'repeatable read'"} {
		if err := p.Exec(t.Context(), "postgres", text); err != nil {
			t.Fatal(err)
		}
	}
	dsn := strings.Replace(p.URL(), "/postgres?", "/"+name+"?", 1)
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

package jobs_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/task"
)

// TestGetOfMixedJobs shows that one Get returns both simple jobs and jobs that need the rules.
func TestGetOfMixedJobs(t *testing.T) {
	t.Parallel()
	bubble(t, func(w *world) {
		mixed := func() {
			for i, after := range []string{"", "+1 HOUR", "", "", "+1 HOUR", ""} {
				w.create(jobs.Spec{Name: "mixed", RetryAfter: after, Priority: task.Set(i)})
			}
		}
		mixed()
		out, err := w.Get(w.Context(), jobs.Request{Selector: jobs.Selector{Pattern: "m*"}, Max: 5})
		w.ok(err)
		var got []jobs.ID
		for _, h := range out {
			got = append(got, h.ID)
		}
		if fmt.Sprint(got) != "[1 2 3 4 5]" {
			w.Errorf("five of six jobs: %v", got)
		}
		w.get("mixed")

		mixed()
		var wg sync.WaitGroup
		for range 6 {
			wg.Go(func() {
				if _, err := w.Get(w.Context(), jobs.Request{Selector: jobs.Selector{Pattern: "m*"}}); err != nil {
					w.Errorf("one of six who ask for one of six jobs: %v", err)
				}
			})
		}
		wg.Wait()
		w.none("mixed")
	})
}

// TestWaitForMixedJobs shows that waiting callers get all jobs that become due, without polling.
func TestWaitForMixedJobs(t *testing.T) {
	t.Parallel()
	bubble(t, func(w *world) {
		var wg sync.WaitGroup
		begin := time.Now()
		for range 4 {
			wg.Go(func() {
				if _, err := w.Get(w.Context(), jobs.Request{Selector: jobs.Selector{Pattern: "m*"}, Wait: true}); err != nil {
					w.Error(err)
				}
				if late := time.Since(begin) - time.Second; late > 100*time.Millisecond {
					w.Errorf("a job was handed out %v late", late)
				}
			})
		}
		synctest.Wait()
		specs := make([]jobs.Spec, 4)
		for i := range specs {
			specs[i] = jobs.Spec{Name: "mixed", FirstRun: begin.Add(time.Second)}
			if i%2 == 1 {
				specs[i].RetryAfter = "+1 HOUR"
			}
		}
		_, err := w.CreateAll(w.Context(), specs)
		w.ok(err)
		wg.Wait()
	})
}

// TestRefusalsSayWhy: the error for a refused field names the found value or an accepted one.
func TestRefusalsSayWhy(t *testing.T) {
	t.Parallel()
	bubble(t, func(w *world) {
		for want, spec := range map[string]jobs.Spec{
			`data: malformed: want a JSON object, such as {"page": 1}`:        {Name: "a", Data: []byte("[1]")},
			"weight: malformed: -1 is not from 0 to 1099511627":               {Name: "a", Queue: "q", Weight: task.Set(-1.0)},
			"jobPriority: malformed: 2000000 is not from -1048576 to 1048576": {Name: "a", Priority: task.Set(2_000_000)},
		} {
			if _, err := w.Create(w.Context(), spec); !errors.Is(err, jobs.ErrBadJob) || !strings.Contains(err.Error(), want) {
				w.Errorf("got %v, want %s", err, want)
			}
		}
	})
}

// TestListRefusesUnknownStates shows that a Filter with an unknown state is refused.
func TestListRefusesUnknownStates(t *testing.T) {
	t.Parallel()
	bubble(t, func(w *world) {
		w.create(jobs.Spec{Name: "a"})
		_, err := w.List(w.Context(), jobs.Filter{States: []jobs.State{jobs.Failed, "failed"}})
		var field *jobs.FieldError
		if !errors.As(err, &field) || !strings.Contains(err.Error(), `state "failed" is unknown, want some of [QUEUED`) {
			w.Fatalf("%v", err)
		}
		found, err := w.List(w.Context(), jobs.Filter{States: []jobs.State{jobs.Failed, jobs.Queued}})
		w.ok(err)
		if len(found) != 1 {
			w.Fatalf("%v", found)
		}
	})
}

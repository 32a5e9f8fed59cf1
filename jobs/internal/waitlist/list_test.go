package waitlist

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/internal/testwait"
	"github.com/swarmiji/swarmiji/jobs/jobstore"
	"github.com/swarmiji/swarmiji/task"
)

// TestGroupsAreApart shows that callers with different requests are in different groups.
func TestGroupsAreApart(t *testing.T) {
	t.Parallel()
	type request struct {
		lease time.Duration
		sel   jobstore.Selector
	}
	var all []request
	for _, lease := range []time.Duration{0, 1000, 36022, time.Second, 10 * time.Second} {
		for _, mock := range []bool{false, true} {
			for _, priority := range []task.Opt[int]{{}, task.Set(0), task.Set(1), task.Set(11), task.Set(-1)} {
				for _, names := range [][]string{{"a"}, {"a", "b"}, {"ab"}, {"*"}, {"1"}, {"m"}, {"p1"}} {
					all = append(all, request{lease, jobstore.Selector{Mock: mock, Priority: priority, Names: names}})
					all = append(all, request{lease, jobstore.Selector{Mock: mock, Priority: priority, Pattern: names[0]}})
				}
				all = append(all, request{lease, jobstore.Selector{Mock: mock, Priority: priority, Pattern: "?"}})
			}
		}
	}
	seen := map[string]string{}
	for i := range all {
		text := fmt.Sprintf("%+v", all[i])
		key := groupKey(&all[i].sel, all[i].lease)
		if other, ok := seen[key]; ok && other != text {
			t.Fatalf("%s and %s are one group", other, text)
		}
		seen[key] = text
	}
}

// TestLargeJobsAreClaimedFewAtATime shows that one claim for many callers contains only as many
// large jobs as fit.
func TestLargeJobsAreClaimedFewAtATime(t *testing.T) {
	t.Parallel()
	const callers, each = 200, 1 << 20
	data := make([]byte, each)
	begun, let := make(chan struct{}), make(chan struct{})
	var limits []int // one goroutine serves a group
	w := New(Config{
		Limit: 1000, GiveBack: func(jobstore.Handout) { t.Error("a job is left") },
		Take: func(_ context.Context, _ jobstore.Selector, _ time.Duration, limit int) ([]jobstore.Handout, error) {
			if limits = append(limits, limit); len(limits) == 1 {
				close(begun)
				<-let
			}
			out := make([]jobstore.Handout, limit)
			for i := range out {
				out[i].Data = data
			}
			return out, nil
		},
	})
	var group sync.WaitGroup
	get := func() {
		got, err := w.Get(context.Background(), jobstore.Selector{Names: []string{"a"}}, 0, 1, false)
		if err != nil || len(got) != 1 {
			t.Errorf("%d jobs, %v", len(got), err)
		}
	}
	group.Go(get)
	<-begun
	for range callers - 1 {
		group.Go(get)
	}
	testwait.Until(t, "all have asked", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.arrived == callers
	})
	close(let)
	group.Wait()
	if err := w.Close(context.Background()); err != nil {
		t.Error(err)
	}
	for _, n := range limits {
		if n*each > takeBytes {
			t.Errorf("%d jobs of %d bytes are claimed at once", n, each)
		}
	}
}

package jobs_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/jobs"
)

// TestTogether lets many workers process jobs of all kinds, with waiting. Each run belongs to one
// worker, and jobs of a sequence key run one at a time.
func TestTogether(t *testing.T) {
	t.Parallel()
	for name, plain := range map[string]bool{"steps": false, "plain": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, plain, jobs.Config{})
			together(t, w)
		})
	}
}

func together(t *testing.T, w *world) {
	const makers, each, workers = 4, 100, 16
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	h := &hands{runs: map[string]bool{}, running: map[string]bool{}, last: map[string]jobs.ID{}, left: makers * each, done: cancel}
	var all sync.WaitGroup
	for m := range makers {
		all.Go(func() {
			for i := range each {
				spec := jobs.Spec{Name: fmt.Sprintf("n%d", i%3)}
				switch i % 4 {
				case 1:
					spec.SequenceKey = fmt.Sprintf("k%d", i%5)
				case 2:
					spec.RetryAfter = "+1 HOUR"
				case 3:
					spec.Repeat, spec.Data = "FINISHED, +0 SECONDS", []byte(`{"again":true}`)
				}
				if _, err := w.Create(context.Background(), spec); err != nil {
					t.Error(m, err)
				}
			}
		})
	}
	for i := range workers {
		all.Go(func() {
			for {
				out, err := w.Get(ctx, jobs.Request{Selector: jobs.Selector{Pattern: []string{"*", "n?", "n[0-9]"}[i%3]}, Wait: true, Max: 1 + i%3})
				if errors.Is(err, jobs.ErrNoJob) {
					return
				}
				if err != nil {
					t.Error(err)
					return
				}
				for _, j := range out {
					if err := h.work(w, j); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	all.Wait()
	if rest, err := w.List(t.Context(), jobs.Filter{}); err != nil || len(rest) > 0 || h.left != 0 {
		t.Fatalf("%d jobs left, %d not counted, %v", len(rest), h.left, err)
	}
}

// hands records which worker has which job.
type hands struct {
	mu      sync.Mutex
	runs    map[string]bool
	last    map[string]jobs.ID // by sequence key
	running map[string]bool
	left    int
	done    func()
}

func (h *hands) work(w *world, j jobs.Handout) error {
	ctx := context.Background()
	if err := h.begin(j); err != nil {
		return err
	}
	runtime.Gosched()
	again := j.Run == 1 && (j.ID%7 == 0 || j.Repeat != "")
	h.end(j, again)
	switch {
	case again && j.ID%7 == 0:
		return w.Retry(ctx, jobs.Retry{ID: j.ID, Token: j.Token, IgnoreRepeat: true})
	case again:
		return w.Finish(ctx, jobs.Finish{ID: j.ID, Token: j.Token})
	}
	return w.Finish(ctx, jobs.Finish{ID: j.ID, Token: j.Token, Data: []byte(`{"delete":"true"}`)})
}

func (h *hands) begin(j jobs.Handout) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	run := fmt.Sprintf("%d/%d", j.ID, j.Run)
	if h.runs[run] {
		return fmt.Errorf("run %s was handed out twice", run)
	}
	h.runs[run] = true
	if key := j.SequenceKey; key != "" {
		if h.running[key] || h.last[key] > j.ID {
			return fmt.Errorf("job %d of the key %s runs with or after job %d", j.ID, key, h.last[key])
		}
		h.running[key], h.last[key] = true, j.ID
	}
	return nil
}

func (h *hands) end(j jobs.Handout, again bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.running, j.SequenceKey)
	if again {
		return
	}
	if h.left--; h.left == 0 {
		h.done()
	}
}

package task_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/swarmiji/swarmiji/task"
)

// host is a queue whose batches wait until ctx ends, or until release.
type host struct {
	mu      sync.Mutex
	waiting int
	release chan struct{}
}

func (h *host) AddWaiting(n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.waiting += n
}

func (h *host) AwaitLast(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-h.release:
	}
}

func (h *host) Call(fn func(ctx context.Context) error) error { return fn(context.Background()) }

func (h *host) count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.waiting
}

// batched registers a batch handler, and returns a function that runs a request as a consumer
// does. fn gets the sizes of the calls.
func batched(t *testing.T, o task.BatchOptions, fn func(batch []*task.BatchItem[int, int])) func(ctx context.Context, h *host, change func(*task.Request)) (any, error) {
	t.Helper()
	var mux task.Mux
	err := task.New[int, int]("rows").HandleBatch(&mux, o, func(_ context.Context, batch []*task.BatchItem[int, int]) error {
		fn(batch)
		for _, item := range batch {
			item.Return(2*item.Args, nil)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	handler, _, _ := mux.Lookup("rows")
	return func(ctx context.Context, h *host, change func(*task.Request)) (any, error) {
		r := task.NewRequest(&task.Envelope{ID: "x", Name: "rows"}, func(_ string, _ []byte, v any) error {
			*v.(*int) = 7
			return nil
		})
		if h != nil {
			r.BatchIn(h)
		}
		if change != nil {
			change(r)
		}
		return handler.Handle(task.WithRequest(ctx, r), r)
	}
}

// TestBatchAlone shows which tasks have a call of their own, at once: suspects in quarantine,
// retried tasks, and those outside of a consumer.
func TestBatchAlone(t *testing.T) {
	for name, c := range map[string]struct {
		host   *host
		change func(*task.Request)
		took   time.Duration
	}{
		"a first attempt":    {new(host), nil, time.Minute},
		"a suspect":          {new(host), func(r *task.Request) { r.Quarantined = true }, 0},
		"a retry":            {new(host), func(r *task.Request) { r.Retries = 1 }, 0},
		"without a consumer": {nil, nil, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			run := batched(t, task.BatchOptions{Max: 2, Wait: time.Minute}, func([]*task.BatchItem[int, int]) {})
			began := time.Now()
			got, err := run(t.Context(), c.host, c.change)
			if took := time.Since(began); got != 14 || err != nil || took != c.took {
				t.Errorf("%s: %v, %v after %v; want 14 after %v", name, got, err, took, c.took)
			}
		})
	}
}

// TestBatchLeave shows that a task whose context ends leaves its batch at that moment, and counts
// no longer as waiting. A batch without tasks makes no call.
func TestBatchLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gone := errors.New("gone")
		calls := 0
		run := batched(t, task.BatchOptions{Max: 3, Wait: time.Minute}, func([]*task.BatchItem[int, int]) { calls++ })
		h := new(host)
		ctx, cancel := context.WithCancelCause(t.Context())
		var all sync.WaitGroup
		began := time.Now()
		for range 2 {
			all.Go(func() {
				if got, err := run(ctx, h, nil); got != nil || !errors.Is(err, gone) || time.Since(began) != time.Second {
					t.Errorf("%v, %v after %v", got, err, time.Since(began))
				}
			})
		}
		synctest.Wait()
		if n := h.count(); n != 2 {
			t.Errorf("%d tasks wait, want 2", n)
		}
		<-time.After(time.Second)
		cancel(gone)
		all.Wait()
		if n := h.count(); n != 0 || calls != 0 {
			t.Errorf("%d tasks wait, %d calls", n, calls)
		}
		// the next batch has its whole time
		if _, err := run(t.Context(), h, nil); err != nil || time.Since(began) != 61*time.Second || calls != 1 {
			t.Errorf("%v after %v, %d calls", err, time.Since(began), calls)
		}
	})
}

// TestBatchEndedContext shows that a call gets no task whose context ended at the moment of its
// begin. The task ends with the cause of its context.
func TestBatchEndedContext(t *testing.T) {
	gone := errors.New("gone")
	for range 200 { // the order of goroutines differs
		synctest.Test(t, func(t *testing.T) {
			run := batched(t, task.BatchOptions{Max: 3, Wait: time.Minute}, func(batch []*task.BatchItem[int, int]) {
				for _, item := range batch {
					if err := item.Context().Err(); err != nil {
						t.Errorf("the call has a task with %v", err)
					}
				}
			})
			h := &host{release: make(chan struct{})}
			ctx, cancel := context.WithCancelCause(t.Context())
			var all sync.WaitGroup
			all.Go(func() {
				if got, err := run(t.Context(), h, nil); got != 14 || err != nil {
					t.Errorf("%v, %v", got, err)
				}
			})
			all.Go(func() {
				if _, err := run(ctx, h, nil); !errors.Is(err, gone) {
					t.Errorf("the task of the ended context: %v", err)
				}
			})
			synctest.Wait()
			cancel(gone)
			close(h.release)
			all.Wait()
			if n := h.count(); n != 0 {
				t.Errorf("%d tasks wait", n)
			}
		})
	}
}

// TestBatchQueues shows that each queue has batches of its own.
func TestBatchQueues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		sizes := ""
		run := batched(t, task.BatchOptions{Max: 2, Wait: time.Minute}, func(batch []*task.BatchItem[int, int]) {
			mu.Lock()
			defer mu.Unlock()
			sizes += fmt.Sprint(len(batch))
		})
		a, b := new(host), new(host)
		var all sync.WaitGroup
		for _, h := range []*host{a, b, b} {
			all.Go(func() { _, _ = run(t.Context(), h, nil) })
		}
		all.Wait()
		if sizes != "21" {
			t.Errorf("calls of %s tasks, want 2 of one queue, then 1 of the other", sizes)
		}
	})
}

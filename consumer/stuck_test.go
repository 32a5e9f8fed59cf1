package consumer_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/task"
)

// lines is a log that a test can read while it is written.
type lines struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *lines) count(s string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.buf.String(), s)
}

func (l *lines) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// TestStuckHandlersHaveABound (S20) shows that a queue fetches until MaxStuck handlers are stuck.
// Then only this queue stops, logs that, and continues when one of them returns. Promises: S49.
func TestStuckHandlersHaveABound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &lines{}
		b := newTable(t, func(c *consumer.Config) {
			c.Queues = map[string]consumer.QueueConfig{"default": {Workers: 1}, "other": {Workers: 1}}
			c.Logger = slog.New(slog.NewTextHandler(log, nil))
		})
		ignorant := task.New[int, int]("ignorant", task.WithTimeLimit(time.Second))
		release := make(chan struct{})
		must0(t, ignorant.Handle(b.c, func(_ context.Context, i int) (int, error) {
			<-release
			return i, nil
		}))
		b.run()
		stick := func() {
			t.Helper()
			f, err := ignorant.Submit(t.Context(), b.p, 1)
			must0(t, err)
			if _, err := f.Get(t.Context()); !errors.Is(err, task.ErrTimeLimit) {
				t.Fatalf("a handler that ignores its time limit: %v", err)
			}
		}
		for range consumer.MaxStuck {
			stick()
		}
		if s := b.c.Stats(); s.Stuck != consumer.MaxStuck || s.Queues[0].Stuck != consumer.MaxStuck || s.Queues[1].Stuck != 0 || s.Active != 0 {
			t.Errorf("%+v", s)
		}
		held := b.submit(1)
		other := b.submit(2, task.WithQueue("other"))
		time.Sleep(time.Minute)
		if got, err := other.Get(t.Context()); err != nil || got != 2 {
			t.Errorf("the other queue: %d, %v", got, err)
		}
		if n := b.runs.Load(); n != 1 {
			t.Errorf("%d tasks ran in place of stuck handlers beyond the bound", n-1)
		}
		release <- struct{}{}
		if got, err := held.Get(t.Context()); err != nil || got != 1 {
			t.Errorf("after a handler has returned: %d, %v", got, err)
		}
		stick()
		b.submit(3)
		time.Sleep(time.Minute)
		if n := log.count("fetching stops"); n != 2 {
			t.Errorf("that fetching stops was told %d times, want 2", n)
		}
		close(release)
		synctest.Wait()
		if s := b.c.Stats(); s.Stuck != 0 {
			t.Errorf("when all have returned: %+v", s)
		}
		time.Sleep(time.Minute)
		b.end()
	})
}

// TestObedientHandlersAreNotStuck (S20) shows that a handler that returns soon after its hard limit
// is never reported as stuck. No other task runs in its place meanwhile.
func TestObedientHandlersAreNotStuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &lines{}
		b := newTable(t, func(c *consumer.Config) {
			c.Queues = map[string]consumer.QueueConfig{"default": {Workers: 4}}
			c.Logger = slog.New(slog.NewTextHandler(log, nil))
		})
		var running, most, stuck atomic.Int64
		obey := task.New[time.Duration, int]("obey", task.WithTimeLimit(50*time.Millisecond))
		must0(t, obey.Handle(b.c, func(ctx context.Context, tidy time.Duration) (int, error) {
			most.Store(max(most.Load(), running.Add(1)))
			defer running.Add(-1)
			<-ctx.Done()
			time.Sleep(tidy)
			stuck.Store(max(stuck.Load(), b.metrics.Stuck.Count()))
			return 0, ctx.Err()
		}))
		b.run()
		tidy := make([]time.Duration, 20)
		for i := range tidy {
			tidy[i] = time.Duration(i%3) * 100 * time.Millisecond
		}
		fs, err := obey.SubmitAll(t.Context(), b.p, tidy)
		must0(t, err)
		for _, f := range fs {
			if _, err := f.Get(t.Context()); !errors.Is(err, task.ErrTimeLimit) {
				t.Errorf("the end of a task beyond its hard limit: %v", err)
			}
		}
		time.Sleep(time.Minute)
		if n := log.count("hard time limit"); n != 0 || stuck.Load() != 0 {
			t.Errorf("%d lines about stuck handlers, up to %d counted; all obeyed their contexts", n, stuck.Load())
		}
		if most.Load() > 4 {
			t.Errorf("%d handlers ran at once with 4 workers", most.Load())
		}
		b.end()
	})
}

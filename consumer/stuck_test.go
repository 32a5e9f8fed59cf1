package consumer_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/task"
)

// lines is a log that a test reads while it is written.
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

// TestStuckHandlersHaveABound (S20): a queue goes on until MaxStuck handlers are stuck. Then it alone stops, which is told each
// time, and goes on when one of them returns.
// Promises: S49.
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

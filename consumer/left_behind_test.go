package consumer_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/task"
)

// TestStopTakesNoLongerThanItsLimits shows that Run returns when it has given back the tasks of
// handlers that ignore their contexts, and that another consumer then runs them.
func TestStopTakesNoLongerThanItsLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTable(t, func(c *consumer.Config) { c.ShutdownTimeout = 2 * time.Second })
		started, release := make(chan struct{}), make(chan struct{})
		nap := task.New[int, int]("nap")
		must0(t, nap.Handle(b.c, func(_ context.Context, i int) (int, error) {
			close(started)
			<-release
			return i, nil
		}))
		b.run()
		_, err := nap.Submit(t.Context(), b.p, 1)
		must0(t, err)
		<-started
		begin := time.Now()
		if err := b.stop(); !errors.Is(err, consumer.ErrForced) {
			t.Errorf("Run: %v", err)
		}
		if took, want := time.Since(begin), 2*time.Second+consumer.DefaultKillGrace; took != want {
			t.Errorf("Run returned %v after the stop, want ShutdownTimeout + KillGrace = %v", took, want)
		}
		if s := b.stats(t); s.Ready != 1 || s.Held != 0 {
			t.Errorf("the task was not given back: %+v", s)
		}
		close(release)
		synctest.Wait()
		_ = b.p.Close(t.Context())
		_ = b.store.Close(t.Context())
	})
}

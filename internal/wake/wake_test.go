package wake_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/swarmiji/swarmiji/internal/wake"
)

func TestSleep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		begun := time.Now()
		if !wake.Sleep(ctx, time.Second) || !wake.SleepOr(ctx, done, time.Second) || time.Since(begun) != 2*time.Second {
			t.Errorf("two sleeps of 1 s took %v, or say that they were ended", time.Since(begun))
		}
		time.AfterFunc(time.Second, func() { close(done) })
		if wake.SleepOr(ctx, done, time.Hour) {
			t.Error("a sleep that done ended says that it has lasted")
		}
		time.AfterFunc(time.Second, cancel)
		if wake.Sleep(ctx, time.Hour) {
			t.Error("a sleep that ctx ended says that it has lasted")
		}
		if time.Since(begun) != 4*time.Second {
			t.Errorf("it took %v, want 4 s: the end of a sleep must be seen at once", time.Since(begun))
		}
	})
}

func TestSignal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		s, begun := wake.New(), time.Now()
		s.Notify()
		s.Notify()
		if !s.Wait(ctx, time.Hour) || time.Since(begun) != 0 {
			t.Errorf("waited for %v after a notification, want it kept", time.Since(begun))
		}
		if !s.Wait(ctx, time.Second) || time.Since(begun) != time.Second {
			t.Errorf("waited for %v, want 1 s: two notifications that nobody waited for are one", time.Since(begun))
		}
		time.AfterFunc(time.Second, s.Notify)
		if !s.Wait(ctx, time.Hour) || time.Since(begun) != 2*time.Second {
			t.Errorf("woke after %v, want 2 s: a notification wakes at once", time.Since(begun))
		}
		var none wake.Signal
		none.Notify()
		if !none.Wait(ctx, time.Second) || time.Since(begun) != 3*time.Second {
			t.Errorf("woke after %v, want 3 s: a nil Signal only lets the time pass", time.Since(begun))
		}
		time.AfterFunc(time.Second, cancel)
		if s.Wait(ctx, time.Hour) || time.Since(begun) != 4*time.Second {
			t.Errorf("ctx ended after 4 s; the wait returned after %v, or says that ctx lives", time.Since(begun))
		}
	})
}

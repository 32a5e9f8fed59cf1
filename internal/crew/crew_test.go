package crew_test

import (
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/swarmiji/swarmiji/internal/crew"
)

func TestEveryFunctionRunsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := crew.New()
		defer c.Close()
		const n = 100
		release := make(chan struct{})
		var running atomic.Int64
		for range n { // far more than there are goroutines that wait
			c.Go(func() {
				running.Add(1)
				<-release
				running.Add(-1)
			})
		}
		synctest.Wait()
		if got := running.Load(); got != n {
			t.Fatalf("%d of %d functions run", got, n)
		}
		close(release)
		c.Wait()
		if got := running.Load(); got != 0 {
			t.Fatalf("%d functions run after Wait", got)
		}
	})
}

func TestGoroutinesStayAndGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := crew.New()
		before := runtime.NumGoroutine()
		for range 3 {
			done := make(chan struct{})
			c.Go(func() { close(done) })
			<-done
			synctest.Wait()
			if got := runtime.NumGoroutine(); got != before+1 {
				t.Fatalf("%d goroutines beside the %d before, after one function at a time", got-before, before)
			}
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if got := runtime.NumGoroutine(); got != before {
			t.Fatalf("%d goroutines are left", got-before)
		}
		c.Go(func() {})
		synctest.Wait()
		c.Close()
		c.Close()
		synctest.Wait()
		if got := runtime.NumGoroutine(); got != before {
			t.Fatalf("%d goroutines are left after Close", got-before)
		}
		c.Go(func() {})
		c.Wait()
	})
}

func TestGoexitCountsAsTheEnd(t *testing.T) {
	synctest.Test(t, func(*testing.T) {
		c := crew.New()
		defer c.Close()
		c.Go(runtime.Goexit)
		c.Wait()
	})
}

package gopool_test

import (
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/swarmiji/swarmiji/internal/gopool"
)

func TestEveryFunctionRunsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := gopool.New()
		defer c.Close()
		const n = 100
		release := make(chan struct{})
		var running atomic.Int64
		for range n { // many more than there are waiting goroutines
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

// TestGoDuringWait shows that functions may be added while another goroutine waits, also at the
// moment in which the last one ends.
func TestGoDuringWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := gopool.New()
		defer c.Close()
		var ran atomic.Int64
		go func() {
			for range 1000 {
				c.Go(func() { ran.Add(1) })
			}
		}()
		for ran.Load() < 1000 {
			c.Wait()
			runtime.Gosched()
		}
		c.Wait()
	})
}

// TestReleaseDuringWait shows that no call of Wait misses the last Release. Such a call would wait
// forever, which ends the bubble with an error.
func TestReleaseDuringWait(t *testing.T) {
	synctest.Test(t, func(*testing.T) {
		whole := gopool.New()
		defer whole.Close()
		part := whole.Part()
		for range 20_000 {
			part.Hold()
			go part.Release()
			part.Wait()
			whole.Wait()
		}
	})
}

// TestGoroutinesStayAndGo shows that one goroutine runs consecutive functions and ends after a time
// without one. The synctest bubble waits at its end until all goroutines have ended, after the idle
// time and after Close.
func TestGoroutinesStayAndGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := gopool.New()
		on := func() (id string) {
			c.Go(func() { id = goroutine() })
			c.Wait()
			synctest.Wait() // the goroutine waits for another function
			return id
		}
		first := on()
		for range 3 {
			if id := on(); id != first {
				t.Errorf("%s ran a function while %s had nothing to do", id, first)
			}
		}
		time.Sleep(2 * time.Second)
		later := on()
		if later == first {
			t.Errorf("%s has stayed for two seconds", first)
		}
		c.Close()
		c.Close()
		if id := on(); id == later {
			t.Errorf("%s has stayed after Close", id)
		}
	})
}

// goroutine returns the runtime's name of the present goroutine.
func goroutine() string {
	buf := make([]byte, 64)
	name, _, _ := strings.Cut(string(buf[:runtime.Stack(buf, false)]), " [")
	return name
}

func TestGoexitCountsAsTheEnd(t *testing.T) {
	synctest.Test(t, func(*testing.T) {
		c := gopool.New()
		defer c.Close()
		c.Go(runtime.Goexit)
		c.Wait()
	})
}

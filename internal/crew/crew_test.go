package crew_test

import (
	"runtime"
	"strings"
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

// TestGoroutinesStayAndGo: one goroutine runs what comes one after the other, and ends when nothing comes. That none is left,
// neither after a while nor after Close, is what the bubble waits for at its end.
func TestGoroutinesStayAndGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := crew.New()
		on := func() (id string) {
			c.Go(func() { id = goroutine() })
			c.Wait()
			synctest.Wait() // it waits for more
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

// goroutine is what the runtime calls the present goroutine.
func goroutine() string {
	buf := make([]byte, 64)
	name, _, _ := strings.Cut(string(buf[:runtime.Stack(buf, false)]), " [")
	return name
}

func TestGoexitCountsAsTheEnd(t *testing.T) {
	synctest.Test(t, func(*testing.T) {
		c := crew.New()
		defer c.Close()
		c.Go(runtime.Goexit)
		c.Wait()
	})
}

package held

import (
	"sync"
	"time"
)

// Over returns a channel that is closed when wg is done.
func Over(wg *sync.WaitGroup) <-chan struct{} {
	done := make(chan struct{})
	go func() {
		wg.Wait()
		close(done)
	}()
	return done
}

// Stop waits for what runs to end: for soft, and after it has called kill, which is to end it, for
// hard. It reports whether it has ended.
func Stop(ended <-chan struct{}, soft time.Duration, kill func(), hard time.Duration) bool {
	t := time.NewTimer(soft)
	defer t.Stop()
	select {
	case <-ended:
		return true
	case <-t.C:
	}
	kill()
	t.Reset(hard)
	select {
	case <-ended:
		return true
	case <-t.C:
		return false
	}
}

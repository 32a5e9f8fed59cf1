package held

import (
	"sync"
	"time"
)

// Over returns a channel that is closed when wg.Wait returns. It starts a goroutine for that.
func Over(wg *sync.WaitGroup) <-chan struct{} {
	done := make(chan struct{})
	go func() {
		wg.Wait()
		close(done)
	}()
	return done
}

// Stop blocks until ended is closed, at first for the time soft. Then it calls kill, which must end
// the work, and waits for the time hard. It returns true if ended was closed, false if it is still
// open after both times.
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

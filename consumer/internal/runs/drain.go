package runs

import "time"

// Drain waits until the work of a stopping consumer has ended, and ends it by force when its time
// is over. All fields are required.
type Drain struct {
	Timeout time.Duration   // for running handlers; 0 or less: none
	Grace   time.Duration   // after each step of force
	Killed  <-chan struct{} // closed: do not wait for handlers
	Running func() int      // the number of running handlers
	// Cancel cancels the handlers.
	Cancel func(running int)
	// Abandon ends the settlements and gives the tasks of the remaining handlers back.
	Abandon func()
	// Settled waits for the settlements.
	Settled func()
}

// Wait blocks until drained is closed. After Timeout or Killed it calls Cancel and waits for Grace.
// Then it calls Abandon, and waits for Settled within Grace. It does not wait for handlers that
// ignore their context.
//
// forced is true if handlers still ran after the first wait, or settlements after the second one.
// running is the number of handlers after the first wait.
func (d *Drain) Wait(drained <-chan struct{}) (running int, forced bool) {
	soft := time.NewTimer(max(d.Timeout, 0))
	defer soft.Stop()
	select {
	case <-drained:
		return 0, false
	default:
	}
	select {
	case <-drained:
		return 0, false
	case <-soft.C:
	case <-d.Killed:
	}
	running = d.Running()
	d.Cancel(running)
	hard := time.NewTimer(d.Grace)
	defer hard.Stop()
	select {
	case <-drained:
		return running, running > 0 // otherwise only settlements were left, and they have ended
	case <-hard.C:
	}
	last := time.NewTimer(d.Grace)
	defer last.Stop()
	d.Abandon()
	settled := make(chan struct{})
	go func() {
		d.Settled()
		close(settled)
	}()
	select { // interrupted settlements give their tasks back
	case <-settled:
	case <-last.C:
	}
	return running, true
}

package crashes

import (
	"context"
	"time"
)

// A task whose earlier start has ended its process runs alone in the next process. The time for
// that is limited: a task that ends its process does so soon, and other tasks must not wait for one
// that only takes long.
const (
	quarantineWait  = 10 * time.Second // the longest wait for running tasks before a suspect starts
	quarantineLimit = 30 * time.Second // after this time other tasks start beside the suspect
	quarantinePoll  = 5 * time.Millisecond
)

// isolation is the time in which a suspect runs alone.
type isolation struct {
	suspect Run
	over    context.Context // ends with the suspect or at the time limit
	end     context.CancelFunc
}

// Enter adds r to the running tasks. A suspect is a task whose earlier start has ended its process.
// If r is a suspect, Enter first begins its quarantine, in which no other task starts, and blocks
// until the running tasks have ended. After quarantineWait r starts beside those that still run.
//
// If another suspect is in quarantine, Enter blocks until that one has ended or its time is over.
// The task counts as reserved during that wait. Enter takes no lock.
//
// If ok is true, remove the task from the running ones after its end, and then call leave, which
// ends a quarantine of r. If ok is false, leave is nil, and the task must not start any more and is
// not among the running ones: the consumer stops, the queue is paused, or the broker has taken the
// task back.
func (w *Watch) Enter(r Run) (leave func(), ok bool) {
	leave = stay
	if r.State().suspect {
		if leave, ok = w.isolate(r); !ok {
			return nil, false
		}
	}
	for {
		r.SetRunning(true)
		// read after SetRunning: a new suspect either sees this run, or this run sees the suspect
		i := w.quarantine.Load()
		if i == nil || i.over.Err() != nil || i.suspect == r {
			return leave, true
		}
		r.SetRunning(false)
		if !awaitEnd(r, i) {
			leave()
			return nil, false
		}
	}
}

// stay is the leave function of a run that was not in quarantine. It does nothing.
func stay() {}

// awaitEnd blocks until the isolation of a suspect is over and returns true. It returns false if r
// must not start any more: the consumer stops, the queue is paused, or the broker has taken the
// task back. r counts as reserved meanwhile.
func awaitEnd(r Run, i *isolation) bool {
	ctx, release := r.WaitContext()
	defer release()
	r.Reserve(true)
	defer r.Reserve(false)
	select {
	case <-i.over.Done():
		return true
	case <-ctx.Done():
		return false
	}
}

// Isolated returns a channel that is closed while a suspect is in quarantine or waits for the
// running tasks. Otherwise it is closed when the next quarantine begins. It takes w.mu.
func (w *Watch) Isolated() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.begun == nil {
		w.begun = make(chan struct{})
	}
	begun := w.begun
	if i := w.quarantine.Load(); i != nil && i.over.Err() == nil {
		close(w.begun)
		w.begun = nil
	}
	return begun
}

// notifyBegun closes the channel of Isolated. It takes w.mu.
func (w *Watch) notifyBegun() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.begun != nil {
		close(w.begun)
		w.begun = nil
	}
}

// isolate begins the quarantine of the suspect r: no other task starts. It blocks until the running
// tasks have ended, for at most quarantineWait; then r starts beside them. If another suspect is in
// quarantine, it waits for the end of that one first.
//
// Call end after the suspect has ended; without a call the quarantine ends after quarantineWait and
// quarantineLimit. ok is false if the task must not start any more; the quarantine has then ended,
// and end is nil.
func (w *Watch) isolate(r Run) (end func(), ok bool) {
	ctx, release := r.WaitContext()
	defer release()
	var i *isolation
	for i == nil {
		if other := w.quarantine.Load(); other != nil {
			if !awaitEnd(r, other) {
				return nil, false
			}
			w.quarantine.CompareAndSwap(other, nil) // its time is over, even if it still runs
		}
		over, end := context.WithTimeout(w.work, quarantineWait+quarantineLimit)
		i = &isolation{suspect: r, over: over, end: end}
		if !w.quarantine.CompareAndSwap(nil, i) {
			i.end()
			i = nil
		}
	}
	w.notifyBegun()
	waiting, stop := context.WithTimeout(ctx, quarantineWait)
	defer stop()
	tick := time.NewTicker(quarantinePoll)
	defer tick.Stop()
	for w.cfg.Running() > 0 && waiting.Err() == nil {
		select {
		case <-tick.C:
		case <-waiting.Done():
		}
	}
	end = func() {
		i.end()
		w.quarantine.CompareAndSwap(i, nil)
	}
	if ctx.Err() != nil {
		end()
		return nil, false
	}
	return end, true
}

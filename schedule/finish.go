package schedule

import (
	"context"
	"errors"
	"time"

	"github.com/swarmiji/swarmiji/internal/wake"
	"github.com/swarmiji/swarmiji/task"
)

// sendFinish passes f to the goroutine of finishLoop, which ends the claim on the tick of h. A
// claim reserves a tick, one run of an entry, for this listener until its lease ends.
//
// From now on a failed renewal is not reported as a loss. It blocks while the channel is full. If
// r.calls ends first, f is dropped: the claim then ends with its lease, and the tick runs again.
func (r *runner) sendFinish(h *hold, f Finish) {
	f.Tick = h.tick
	h.Settle()
	select {
	case r.ends <- pendingFinish{h, f}:
	case <-r.calls.Done():
	}
}

// finishLoop passes the claims received from r.ends to finishAll, up to maxClaim of them together.
// It returns when r.ends is closed and empty, or r.calls ends; claims left then end with their
// leases.
func (r *runner) finishLoop() {
	for {
		var list []pendingFinish
		select {
		case e, ok := <-r.ends:
			if !ok {
				return
			}
			list = append(list, e)
		case <-r.calls.Done():
			return
		}
		for more := true; more && len(list) < maxClaim; {
			select {
			case e, ok := <-r.ends:
				if more = ok; ok {
					list = append(list, e)
				}
			default:
				more = false
			}
		}
		r.finishAll(list)
	}
}

// finishAll ends claims in the store and then removes their ticks from the held ones, whatever the
// outcome. It blocks and retries until the store answers, is closed, rejects the call, or r.calls
// ends. It logs the first failure. Claims that were not ended stay until their leases end.
//
// If the first attempt reports that a claim is no longer held, its tick is marked as lost. After a
// retry this may only mean that an earlier attempt ended the claim.
func (r *runner) finishAll(list []pendingFinish) {
	finishes, holds := make([]Finish, len(list)), make([]*hold, len(list))
	for i, e := range list {
		finishes[i], holds[i] = e.Finish, e.hold
	}
	defer r.held.Release(holds...)
	for attempt := 0; ; attempt++ {
		ctx, cancel := r.call()
		held, err := r.c.Store.Done(ctx, r.c.NodeID, finishes)
		cancel()
		if err == nil {
			for i := range held {
				// After a retry, false may mean that the first call has ended the claim.
				if !held[i] && attempt == 0 {
					r.markLost(list[i].hold)
				}
			}
			return
		}
		if attempt == 0 {
			r.c.Logger.Warn("schedule: ending claims failed; trying again", "schedule", r.c.Name, "error", err)
		}
		if errors.Is(err, ErrClosed) || errors.Is(err, ErrBadEntry) || !wake.Sleep(r.calls, r.c.Backoff.Interval(attempt)) {
			return
		}
	}
}

// markLost notes that another listener holds the tick now, and ends the context of its handler. The
// first time it also counts and reports the loss; later calls do nothing.
func (r *runner) markLost(h *hold) {
	if h.Lose() {
		r.l.stats.lost.Add(1)
		r.l.report(ProblemLost, &h.tick, h.content.Job, nil)
	}
}

// call returns a context for one call to the store or result store: it ends after one lease, or
// with r.calls. It does not end with the context of Listener.Run.
func (r *runner) call() (context.Context, context.CancelFunc) {
	return context.WithTimeout(r.calls, r.c.Lease)
}

// renew renews the leases of ticks in the store. It leaves out ticks that were released meanwhile.
// errs holds task.ErrLeaseLost for each tick that another listener has claimed, and nil for the
// others; it is nil after an error of the store. asked is the time before the call.
//
// It first waits until no other renewal runs and no releaseAfter waits for one. The call lasts at
// most one lease.
func (r *runner) renew(ctx context.Context, hs []*hold) (errs []error, asked time.Time, err error) {
	asked = time.Now()
	ctx, cancel := context.WithTimeout(ctx, r.c.Lease)
	defer cancel()
	// A release waits for renewing: a renewal that reached the store after it would undo it.
	r.renewing <- struct{}{}
	defer func() { <-r.renewing }()
	errs = make([]error, len(hs))
	var still []*hold
	var at []int // the places of still in hs
	for i, h := range hs {
		if r.held.Holds(h) { // otherwise it was released since the call began
			still, at = append(still, h), append(at, i)
		}
	}
	if len(still) == 0 {
		return errs, asked, nil
	}
	held, err := r.c.Store.Renew(ctx, r.c.NodeID, r.c.Lease, ticks(still))
	if err != nil {
		return nil, asked, err
	}
	for i := range still {
		if !held[i] {
			errs[at[i]] = task.ErrLeaseLost
		}
	}
	return errs, asked, nil
}

// ticks returns the tick of each hold, in the same order.
func ticks(hs []*hold) []Tick {
	list := make([]Tick, len(hs))
	for i, h := range hs {
		list[i] = h.tick
	}
	return list
}

// release stops holding ticks and makes them due again at once, so that other listeners can claim
// them. It blocks like releaseAfter.
func (r *runner) release(hs []*hold) { r.releaseAfter(hs, 0) }

// releaseAfter stops holding ticks and makes them due again after d, for all listeners. It waits
// for a running renewal, calls the store once, and waits for its answer, at most one lease. If the
// store fails, it logs the error; the ticks are due again when their leases end.
func (r *runner) releaseAfter(hs []*hold, d time.Duration) {
	if len(hs) == 0 {
		return
	}
	r.held.Release(hs...)
	r.renewing <- struct{}{} // waits for a running renewal; later ones leave these ticks out
	<-r.renewing
	ctx, cancel := r.call()
	defer cancel()
	if _, err := r.c.Store.Renew(ctx, r.c.NodeID, d, ticks(hs)); err != nil {
		r.c.Logger.Warn("schedule: releasing ticks failed; they are due again when their leases end", "schedule", r.c.Name, "error", err)
	}
}

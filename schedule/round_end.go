package schedule

import (
	"context"
	"errors"
	"time"

	"github.com/swarmiji/swarmiji/internal/wake"
	"github.com/swarmiji/swarmiji/task"
)

// end has a claim ended by and by.
func (r *round) end(h *hold, f Finish) {
	f.Tick = h.tick
	h.Settle()
	select {
	case r.ends <- end{h, f}:
	case <-r.calls.Done():
	}
}

// finish ends claims, as many in one call as there are, until there will be no more.
func (r *round) finish() {
	for {
		var list []end
		select {
		case e, ok := <-r.ends:
			if !ok {
				return
			}
			list = append(list, e)
		case <-r.calls.Done():
			return
		}
		for more := true; more && len(list) < mostTaken; {
			select {
			case e, ok := <-r.ends:
				if more = ok; ok {
					list = append(list, e)
				}
			default:
				more = false
			}
		}
		r.done(list)
	}
}

// done ends claims, and repeats that until there is an answer.
func (r *round) done(list []end) {
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
				// After a repetition false may mean that the first call has done it.
				if !held[i] && attempt == 0 {
					r.lostIt(list[i].hold)
				}
			}
			return
		}
		if attempt == 0 {
			r.c.Logger.Warn("schedule: ending claims", "schedule", r.c.Name, "error", err)
		}
		if errors.Is(err, ErrClosed) || errors.Is(err, ErrBadEntry) || !wake.Sleep(r.calls, r.c.Backoff.Interval(attempt)) {
			return
		}
	}
}

func (r *round) lostIt(h *hold) {
	if h.Lose() {
		r.l.stats.lost.Add(1)
		r.l.report(ProblemLost, &h.tick, h.content.Job, nil)
	}
}

// call is the context of one call of the store, which outlives the end of Run's.
func (r *round) call() (context.Context, context.CancelFunc) {
	return context.WithTimeout(r.calls, r.c.Lease)
}

// renew renews the leases of ticks.
func (r *round) renew(ctx context.Context, hs []*hold) (errs []error, asked time.Time, err error) {
	asked = time.Now()
	ctx, cancel := context.WithTimeout(ctx, r.c.Lease)
	defer cancel()
	held, err := r.c.Store.Renew(ctx, r.c.NodeID, r.c.Lease, ticks(hs))
	if err != nil {
		return nil, asked, err
	}
	errs = make([]error, len(hs))
	for i := range hs {
		if !held[i] {
			errs[i] = task.ErrLeaseLost
		}
	}
	return errs, asked, nil
}

func ticks(hs []*hold) []Tick {
	list := make([]Tick, len(hs))
	for i, h := range hs {
		list[i] = h.tick
	}
	return list
}

// giveBack lets others have ticks at once.
func (r *round) giveBack(hs []*hold) { r.leave(hs, 0) }

// leave ends the holding of ticks, which are due again after d. If the store does not answer they are when their leases end.
func (r *round) leave(hs []*hold, d time.Duration) {
	if len(hs) == 0 {
		return
	}
	r.held.Release(hs...)
	ctx, cancel := r.call()
	defer cancel()
	if _, err := r.c.Store.Renew(ctx, r.c.NodeID, d, ticks(hs)); err != nil {
		r.c.Logger.Warn("schedule: giving ticks back", "schedule", r.c.Name, "error", err)
	}
}

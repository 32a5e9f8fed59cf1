package schedule

import (
	"context"
	"time"

	"github.com/swarmiji/swarmiji/internal/errand"
	"github.com/swarmiji/swarmiji/internal/wake"
	"github.com/swarmiji/swarmiji/task"
)

// submitter submits what is claimed.
func (r *round) submitter() {
	for batch := range r.batches {
		r.submitAll(batch)
	}
}

// submitAll submits a batch, and ends the claims of what was confirmed. A tick that was not is submitted again for as long as a lease, with the same
// id; then it is put off. If others of its batch went through it is itself what is wrong, and put off at once.
func (r *round) submitAll(batch []*hold) {
	calls, left := r.callsOf(batch)
	began := time.Now()
	for attempt := 0; len(left) > 0; attempt++ {
		confirmed, err := r.submit(calls)
		var again []*hold
		var callsAgain []task.Call
		for i, h := range left {
			if confirmed[i] {
				r.l.stats.submitted.Add(1)
				r.end(h, Finish{Remove: h.remove})
				continue
			}
			again, callsAgain = append(again, h), append(callsAgain, calls[i])
		}
		through := len(again) < len(left)
		left, calls = again, callsAgain
		switch {
		case len(left) == 0:
			return
		case r.hard.Err() != nil:
			r.giveBack(left)
			return
		case through || time.Since(began) > r.c.Lease:
			r.refuse(left, err)
			return
		case attempt == 0:
			r.c.Logger.Warn("schedule: nothing can be submitted", "schedule", r.c.Name, "ticks", len(left), "error", err)
		}
		wake.Sleep(r.hard, r.c.Backoff.Interval(attempt))
	}
}

// callsOf makes the calls of a batch, and returns with them what could be made one of.
func (r *round) callsOf(batch []*hold) ([]task.Call, []*hold) {
	calls, left := make([]task.Call, 0, len(batch)), make([]*hold, 0, len(batch))
	for _, h := range batch {
		if h.Lost() {
			r.held.Release(h)
			continue
		}
		c, err := r.makeCall(h)
		if err != nil {
			r.refuse([]*hold{h}, err)
			continue
		}
		calls, left = append(calls, c), append(left, h)
	}
	return calls, left
}

func (r *round) makeCall(h *hold) (task.Call, error) {
	r.l.mu.Lock()
	known := r.l.forwards[h.content.Job]
	r.l.mu.Unlock()
	c := h.content.Call()
	if known != nil {
		typed, err := known(h.content.Args)
		if err != nil {
			return c, err
		}
		typed.Meta.Overlay(&h.content.Meta)
		if len(h.content.Headers) > 0 {
			typed.Headers = h.content.Headers
		}
		if h.content.Correlation != "" {
			typed.Correlation = h.content.Correlation
		}
		c = typed
	}
	c.Name, c.ID = r.c.TaskName(h.content.Job), h.id
	return c, nil
}

// submit submits calls and says which were confirmed.
func (r *round) submit(calls []task.Call) ([]bool, error) {
	ctx, cancel := context.WithTimeout(r.hard, r.c.Lease)
	defer cancel()
	confirmed, _, err := errand.Submit(ctx, r.c.Submit, calls, r.c.Workers)
	return confirmed, err
}

// refuse puts off ticks that cannot be submitted, or gives up those that are too late for that if
// their entries have more.
func (r *round) refuse(hs []*hold, err error) {
	var put []*hold
	for _, h := range hs {
		v := r.putOffOrGiveUp(h, r.clock(), ProblemRefused, err)
		r.tell(&v)
		if v.action == giveUp {
			r.l.stats.dropped.Add(1)
			r.end(h, Finish{})
			continue
		}
		r.l.stats.putOff.Add(1)
		put = append(put, h)
	}
	r.leave(put, r.c.UnknownDelay)
}

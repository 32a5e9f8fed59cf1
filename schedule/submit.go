package schedule

import (
	"context"
	"time"

	"github.com/swarmiji/swarmiji/internal/taskio"
	"github.com/swarmiji/swarmiji/internal/wake"
	"github.com/swarmiji/swarmiji/task"
)

// submitter submits batches until r.batches is closed.
func (r *runner) submitter() {
	for batch := range r.batches {
		r.submitAll(batch)
	}
}

// submitAll submits the ticks of a batch and ends the claims of the confirmed ones. It blocks until
// each tick is confirmed, postponed, given up or released.
//
//   - If no tick of an attempt is confirmed, it retries them with the same ids, for up to one
//     lease.
//   - If only some are confirmed, the others cause the error themselves and are refused at once.
//   - After a hard stop, the remaining ticks are released.
func (r *runner) submitAll(batch []*hold) {
	calls, left := r.callsOf(batch)
	began := time.Now()
	for attempt := 0; len(left) > 0; attempt++ {
		confirmed, err := r.submit(calls)
		var again []*hold
		var callsAgain []task.Call
		for i, h := range left {
			if confirmed[i] {
				r.l.stats.submitted.Add(1)
				r.sendFinish(h, Finish{Remove: h.remove})
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
			r.release(left)
			return
		case through || time.Since(began) > r.c.Lease:
			r.refuse(left, err)
			return
		case attempt == 0:
			r.c.Logger.Warn("schedule: no tick of a batch could be submitted; trying again", "schedule", r.c.Name, "ticks", len(left), "error", err)
		}
		wake.Sleep(r.hard, r.c.Backoff.Interval(attempt))
	}
}

// callsOf returns the calls of a batch, and their ticks in the same order. It releases lost ticks
// and refuses ticks whose arguments cannot be encoded.
func (r *runner) callsOf(batch []*hold) ([]task.Call, []*hold) {
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

// makeCall returns the call that submits h, with the id of the tick. For a task given to [Forward]
// it encodes the arguments with the task's own type; otherwise they are JSON.
func (r *runner) makeCall(h *hold) (task.Call, error) {
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

// submit submits calls with a timeout of one lease. It returns which calls were confirmed, and the
// error of the others.
func (r *runner) submit(calls []task.Call) ([]bool, error) {
	ctx, cancel := context.WithTimeout(r.hard, r.c.Lease)
	defer cancel()
	confirmed, _, err := taskio.Submit(ctx, r.c.Submit, calls, r.c.Workers)
	return confirmed, err
}

// refuse postpones ticks that cannot be submitted. It gives up a tick that is later than
// UnknownLimit if its entry has a later tick. It reports and counts both.
func (r *runner) refuse(hs []*hold, err error) {
	var put []*hold
	for _, h := range hs {
		v := r.postponeOrGiveUp(h, r.clock(), ProblemRefused, err)
		r.reportProblem(&v)
		if v.action == giveUpTick {
			r.l.stats.dropped.Add(1)
			r.sendFinish(h, Finish{})
			continue
		}
		r.l.stats.putOff.Add(1)
		put = append(put, h)
	}
	r.releaseAfter(put, r.c.UnknownDelay)
}

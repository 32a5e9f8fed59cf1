package schedule

import (
	"context"
	"time"

	"github.com/swarmiji/swarmiji/internal/taskio"
	"github.com/swarmiji/swarmiji/internal/wake"
	"github.com/swarmiji/swarmiji/task"
)

// submitter submits batches until r.batches is closed. A batch holds claimed ticks, which are runs
// of entries, to submit as tasks together.
func (r *runner) submitter() {
	for batch := range r.batches {
		r.submitAll(batch)
	}
}

// submitAll submits the ticks of a batch, except those that callsOf leaves out. It counts the
// confirmed ones and ends their claims. It blocks until each tick is confirmed, refused or
// released.
//
//   - If no tick of an attempt is confirmed, it retries them with the same ids, for up to one
//     lease. It logs the first failure. After one lease the ticks are refused.
//   - If only some are confirmed, the others cause the error themselves and are refused at once.
//   - After a hard stop, which is the end of ShutdownTimeout, the remaining ticks are released.
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

// callsOf returns the calls of a batch, and their ticks in the same order. It leaves out and stops
// holding lost ticks. It leaves out and refuses ticks whose arguments do not fit the definition
// given to [Forward].
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

// makeCall returns the call that submits h, with the id of the tick and the name from
// ListenerConfig.TaskName. For a task given to [Forward] it decodes the arguments into the task's
// own type; metadata, headers and correlation of the entry take precedence. Otherwise the arguments
// are JSON.
//
// Returns an error if the arguments do not fit the task's type. It takes the listener's lock.
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

// submit submits calls and blocks until all are answered, one lease has passed or r.hard has ended.
// A submitter without batches gets up to Workers calls at once. It returns, for each call, whether
// it was confirmed. err is the error of the batch, or of the first call in the list that was not
// confirmed. It submits each call once; submitAll repeats.
func (r *runner) submit(calls []task.Call) ([]bool, error) {
	ctx, cancel := context.WithTimeout(r.hard, r.c.Lease)
	defer cancel()
	confirmed, _, err := taskio.Submit(ctx, r.c.Submit, calls, r.c.Workers)
	return confirmed, err
}

// refuse postpones ticks that cannot be submitted: it stops holding them and makes them due again
// after UnknownDelay. It ends the claim of a tick that is later than UnknownLimit if its entry has
// a later tick. It counts both kinds (Stats.PutOff, Stats.Dropped) and reports them, a postponed
// tick at most once an hour. It blocks until the store has answered, at most one lease. It takes
// r.mu.
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

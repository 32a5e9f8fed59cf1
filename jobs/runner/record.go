package runner

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/swarmiji/swarmiji/internal/errand"
	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/task"
)

// end says what a look at a record came to.
type end int

const (
	unended end = iota // there is no record of an end
	ended              // there is, and the job was ended by it, or has moved on
	unsure             // the store of the results, or of the jobs, gave no answer
	theirs             // somebody else here ends it
	awaits             // there is none yet: the task waits for an answer from outside, and no broker has it
)

// recorded ends the run of a job by its task's record, if that tells an end. p reads the result; nil: whatever can. While the store does not
// answer it is asked again.
func (r *round) recorded(h *hold, p task.Pending) end {
	for attempt := 0; ; attempt++ {
		e, err := r.byRecord(h, p)
		if e != unsure {
			return e
		}
		if attempt == 0 {
			r.r.warn("the record of a task cannot be read", err)
		}
		if !errand.Pause(r.calls, r.c.Backoff.Interval(attempt)) {
			r.release(h)
			return unsure
		}
		p = nil // what was to read it may be closed
	}
}

// byRecord looks at the record once.
func (r *round) byRecord(h *hold, p task.Pending) (end, error) {
	var rec resultstore.Record
	err := r.call(func(ctx context.Context) (err error) {
		rec, err = r.c.Results.Load(ctx, h.task)
		return err
	})
	switch {
	case errors.Is(err, resultstore.ErrNotFound):
		return unended, nil
	case err == nil && rec.State == task.StateAwaiting:
		return awaits, nil
	case err == nil && !rec.State.Terminal():
		return unended, nil
	case err != nil && !errors.Is(err, resultstore.ErrMalformed):
		return unsure, err
	}
	if !h.Settle() {
		return theirs, nil
	}
	h.record = true
	var data []byte
	switch {
	case err != nil: // nobody will ever read it
	case rec.State != task.StateSucceeded:
		err = reason(&rec)
	default:
		var certain bool
		if data, certain, err = r.result(h, &rec, p); !certain {
			h.Resume()
			return unsure, err
		}
	}
	var done bool
	if err != nil {
		done = r.fail(h, err, nil)
	} else {
		done = r.conclude(h, &r.r.stats.finished, func(ctx context.Context) error {
			return r.s.Finish(ctx, jobs.Finish{ID: h.ID, Token: h.Token, Data: data, Shared: h.shares()})
		})
	}
	if !done {
		return theirs, nil
	}
	return ended, nil
}

// readFor bounds how long the result of a task whose end is recorded is waited for.
const readFor = 10 * time.Second

// result reads what a task that succeeded has left for its job; certain: an error lies in the result itself.
func (r *round) result(h *hold, rec *resultstore.Record, p task.Pending) (data []byte, certain bool, err error) {
	if h.prepared { // its submitter has the result; the job holds the task itself
		return nil, true, nil
	}
	if rec.Error != nil { // the consumer's own metadata have put the result elsewhere
		return nil, true, rec.Error
	}
	if p == nil {
		p = r.r.pendingOf(rec)
	}
	ctx, cancel := context.WithTimeout(r.calls, readFor)
	defer cancel()
	if data, err = r.r.definition(h.Name).result(ctx, p); err == nil {
		return data, true, nil
	}
	return nil, p.Result(ctx, nil) == nil, fmt.Errorf("%w: %w", task.ErrBadResult, err)
}

// reason is why a task has not succeeded.
func reason(rec *resultstore.Record) error {
	switch {
	case rec.Error != nil:
		return rec.Error
	case rec.State == task.StateRevoked:
		return task.ErrRevoked
	case rec.State == task.StateExpired:
		return task.ErrExpired
	}
	return errors.New("jobs: the task has failed")
}

// sweepPage is how many jobs are read at a time.
const sweepPage = 500

// sighting is a job that was found running.
type sighting struct {
	token int64
	times int // how often it was found with this token
}

// due reports whether the record is to be looked at this time: the first times, and then now and then, since who dispatched the job mostly lives and is told.
func (s sighting) due() bool { return s.times <= 3 || s.times%5 == 0 }

// sweep looks at the records of all jobs that run, at once and then at times: nobody may be waiting for the end of one.
func (r *round) sweep(ctx context.Context) {
	seen := map[jobs.ID]sighting{}
	var revoked map[jobs.ID]bool
	for {
		began := time.Now()
		now, all := make(map[jobs.ID]sighting, len(seen)), true
		for _, q := range r.sweeps() {
			all = r.sweepOver(ctx, q, seen, now) && all
		}
		if all {
			r.miss(now, began)
			seen = now
		}
		revoked = r.revokeWithdrawn(ctx, revoked)
		if !errand.Pause(ctx, r.c.Sweep) {
			return
		}
	}
}

// sweeps returns what the runner's jobs are found by.
func (r *round) sweeps() []jobs.Filter {
	if r.c.Queue != nil {
		return []jobs.Filter{{Queue: r.c.Queue.Name}}
	}
	all := make([]jobs.Filter, len(r.names))
	for i, name := range r.names {
		all[i] = jobs.Filter{Name: name}
	}
	return all
}

// sweepOver notes in now which jobs of a query run, and looks at their records. It reports whether these were all.
func (r *round) sweepOver(ctx context.Context, q jobs.Filter, seen, now map[jobs.ID]sighting) bool {
	q.States, q.Limit = []jobs.State{jobs.Running, jobs.RunQueued}, sweepPage
	for ctx.Err() == nil {
		var page []jobs.Row
		err := r.call(func(ctx context.Context) (err error) {
			page, err = r.s.Rows(ctx, q)
			return err
		})
		if err != nil {
			return false
		}
		var wg sync.WaitGroup
		for i := range page {
			j := &page[i]
			q.After = j.ID
			if r.c.Queue == nil && j.Queue != "" {
				continue
			}
			s := sighting{j.Token, 1}
			if before := seen[j.ID]; before.token == j.Token {
				s.times = before.times + 1
			}
			now[j.ID] = s
			if s.due() {
				wg.Go(func() { r.look(j) })
			}
		}
		wg.Wait()
		if len(page) < sweepPage {
			return true
		}
	}
	return false
}

// look ends the run of a job by its record, if there is an end that nobody has heard of.
func (r *round) look(j *jobs.Row) {
	h, known := r.held.Get(j.ID)
	switch {
	case !known || h.Token != j.Token:
		h = r.newHold(jobs.Handout{Row: *j})
	case !h.entrusted():
		return // it is being submitted, or ended
	}
	if !h.prepared && r.r.definition(h.Name) == nil {
		return
	}
	if e, _ := r.byRecord(h, nil); e == ended { // what cannot be read now can the next time
		r.r.stats.late.Add(1)
	}
}

// miss lets go the jobs that were left to their tasks before a sweep began and did not run in it: others have ended them, or have them now. By a record that is
// as it should be.
func (r *round) miss(now map[jobs.ID]sighting, began time.Time) {
	for _, h := range r.held.All() {
		if !h.entrusted() || !h.got.Before(began) || now[h.ID].token == h.Token {
			continue
		}
		var rec resultstore.Record
		err := r.call(func(ctx context.Context) (err error) {
			rec, err = r.c.Results.Load(ctx, h.task)
			return err
		})
		if err == nil && rec.State.Terminal() {
			r.release(h)
		} else {
			r.lose(h, nil)
		}
	}
}

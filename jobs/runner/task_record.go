package runner

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/swarmiji/swarmiji/internal/wake"
	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/jobs/internal/page"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/task"
)

// end is the result of checking the record of a task.
type end int

const (
	unended          end = iota // no end is recorded
	ended                       // an end is recorded; the job has ended by it, or has continued
	unsure                      // the store of results or of jobs did not reply
	settledElsewhere            // another goroutine of this runner ends the job
	// no end yet: the task waits for an answer from outside, without a broker
	awaits
)

// recorded ends the run of a job if the record of its task contains an end, and returns the result
// of the check. p reads the result; nil: a new handle is used. It blocks and tries again while a
// store does not reply, and logs the first failure. Returns unsure only when the runner ends its
// calls; it then releases the job.
func (r *session) recorded(h *heldJob, p task.Pending) end {
	for attempt := 0; ; attempt++ {
		e, err := r.byRecord(h, p)
		if e != unsure {
			return e
		}
		if attempt == 0 {
			r.r.warn("cannot read the record of a task; trying again", err)
		}
		if !wake.Sleep(r.calls, r.c.Backoff.Interval(attempt)) {
			r.release(h)
			return unsure
		}
		p = nil // its connection may be closed
	}
}

// byRecord reads the record of a task once and, if it contains an end, ends the run of the job. A
// success finishes the run with the result as data; any other end, and an unreadable record or
// result, makes the job FAILED. It blocks until that is stored and releases the job. Meanwhile the
// job is marked as settling; after an unsure result it is unmarked (Resume).
//
// Returns settledElsewhere if another goroutine stores the end, or if storing failed. err is set
// only with the result unsure.
func (r *session) byRecord(h *heldJob, p task.Pending) (end, error) {
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
		return settledElsewhere, nil
	}
	h.record = true
	var data []byte
	switch {
	case err != nil: // it can never be read
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
		return settledElsewhere, nil
	}
	return ended, nil
}

// readFor limits the wait for the result of a task whose end is recorded.
const readFor = 10 * time.Second

// result returns the data for a job from the result of its task. nil data mean that the job keeps
// its data, as for a prepared task or a result that is not a JSON object. p reads the result; nil:
// a new handle is used. It waits at most readFor.
//
// certain is true without an error, and if another read cannot help: the result itself cannot be
// decoded, or err is in the record. Otherwise the caller tries again.
func (r *session) result(h *heldJob, rec *resultstore.Record, p task.Pending) (data []byte, certain bool, err error) {
	if h.prepared { // its submitter receives the result; the job only stores the task
		return nil, true, nil
	}
	if rec.Error != nil { // metadata of the consumer put the result elsewhere
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

// reason returns the error of a recorded task that did not succeed: the recorded error, else
// task.ErrRevoked, task.ErrExpired or a general error.
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

// sweepPage limits the number of jobs that are read at a time.
const sweepPage = 500

// sighting is a running job that a sweep (a check of the records of all running jobs) has found.
type sighting struct {
	token int64
	times int // number of sweeps that found it with this token
}

// due reports whether a sweep checks the record of this job: at the first three sightings and then
// at every fifth. Usually the runner that dispatched the job lives and is notified.
func (s sighting) due() bool { return s.times <= 3 || s.times%5 == 0 }

// sweep checks the records of all running jobs of this runner's names or queue, at once and then at
// each Config.Sweep, until ctx ends. It ends jobs whose task has ended: the runner that waited may
// have died. It releases held jobs that no longer run, and revokes the tasks of withdrawn jobs.
func (r *session) sweep(ctx context.Context) {
	seen := map[jobs.ID]sighting{}
	var revoked map[jobs.ID]bool
	for {
		began := time.Now()
		now, all := make(map[jobs.ID]sighting, len(seen)), true
		for _, q := range r.sweeps() {
			all = r.sweepOver(ctx, q, seen, now) && all
		}
		if all {
			r.dropMissing(now, began)
			seen = now
		}
		revoked = r.revokeWithdrawn(ctx, revoked)
		if !wake.Sleep(ctx, r.c.Sweep) {
			return
		}
	}
}

// sweeps returns the filters that select the jobs of this runner: its queue, or each of its names.
func (r *session) sweeps() []jobs.Filter {
	if r.c.Queue != nil {
		return []jobs.Filter{{Queue: r.c.Queue.Name}}
	}
	all := make([]jobs.Filter, len(r.names))
	for i, name := range r.names {
		all[i] = jobs.Filter{Name: name}
	}
	return all
}

// sweepOver reads the running jobs that q selects, page by page, and adds them to now. It checks,
// concurrently, the records of those that are due for it (sighting.due), and waits until these
// checks have ended. seen contains the jobs of the previous sweep. A job of a queue is left out if
// the runner has no queue.
//
// Returns false if it did not read all jobs: the store failed or ctx ended.
func (r *session) sweepOver(ctx context.Context, q jobs.Filter, seen, now map[jobs.ID]sighting) bool {
	q.States = []jobs.State{jobs.Running, jobs.RunQueued}
	size := pages(sweepPage)
	for ctx.Err() == nil {
		q.Limit = size.Limit()
		var found []jobs.Row
		err := r.call(func(ctx context.Context) (err error) {
			found, err = r.s.Rows(ctx, q)
			return err
		})
		if err != nil {
			return false
		}
		size.Read(len(found), page.Rows(found))
		var wg sync.WaitGroup
		for i := range found {
			j := &found[i]
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
				wg.Go(func() { r.checkRunning(j) })
			}
		}
		wg.Wait()
		if len(found) < q.Limit {
			return true
		}
	}
	return false
}

// checkRunning reads the record of a running job's task once. If the task has ended, it ends the
// run and adds one to Stats.Late. A record or result that can never be read also ends the run, as
// FAILED. It blocks until the end is stored. It changes nothing in these cases:
//
//   - The task has not ended.
//   - Another goroutine of this runner submits the task or ends the job.
//   - The name of the job is not dispatched here, so its result cannot be converted.
//   - The store fails. The next sweep tries again.
func (r *session) checkRunning(j *jobs.Row) {
	h, known := r.held.Get(j.ID)
	switch {
	case !known || h.Token != j.Token:
		h = r.newHeldJob(jobs.Handout{Row: *j})
	case !h.waitsForTask():
		return // another goroutine submits or ends it
	}
	if !h.prepared && r.r.definition(h.Name) == nil {
		return
	}
	if e, _ := r.byRecord(h, nil); e == ended { // after an error the next sweep tries again
		r.r.stats.late.Add(1)
	}
}

// dropMissing releases held jobs that wait for their task, were claimed before began, and are not
// in now. Another worker has ended or claimed them. If the record of the task contains no end or
// cannot be read, the job is counted and reported as lost. It blocks for one read per job.
func (r *session) dropMissing(now map[jobs.ID]sighting, began time.Time) {
	for _, h := range r.held.All() {
		if !h.waitsForTask() || !h.got.Before(began) || now[h.ID].token == h.Token {
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

package jobs

import (
	"fmt"
	"time"
)

// settle sets Due from the state. lease is until when a RUNNING job is leased, zero for one that is not.
func (j *Row) settle(lease time.Time) {
	switch j.State {
	case Queued, RunQueued:
		j.Due = j.NextRun
	case Running:
		j.Due = lease
	default:
		j.Due = time.Time{}
	}
}

// current returns an error if token names another run than the one j is in. 0 names none.
func (j *Row) current(token int64) error {
	switch {
	case token == 0:
		return nil
	case token != j.Token:
		return fmt.Errorf("%w: job %d, token %d, not %d", ErrStale, j.ID, j.Token, token)
	case !j.State.Runs():
		return fmt.Errorf("%w: job %d is %s", ErrStale, j.ID, j.State)
	}
	return nil
}

// kept reports whether a job is kept for a time when it has ended well, so that an answer that comes late or twice is told from one that nobody knows.
func (j *Row) kept() bool { return j.Queue != "" || j.Key != "" }

// alone reports whether a change of j concerns no other job.
func (j *Row) alone() bool { return j.SequenceKey == "" && j.Parent == 0 && !j.HasChildren }

// answered reports whether the present attempt of j has got its answer.
func (j *Row) answered() bool {
	return j.Phase == Answered || j.Phase == "" && j.Key != "" && j.State.Runs() && (j.Answer != nil || j.Reason != "")
}

// rest has j be in no attempt.
func (j *Row) rest() { j.Phase, j.Deadline, j.Expires = "", time.Time{}, time.Time{} }

// leave ends an attempt of j after which it is to run again.
func (j *Row) leave() {
	j.rest()
	if j.kept() {
		j.Attempt = max(j.Attempt, 1)
		j.Answer, j.Reason = nil, ""
	}
}

// anew has j begin with its first attempt. The answer that a job of a queue has got last stays until then; what hands out others does not look.
func (j *Row) anew() {
	j.rest()
	j.Attempt = 0
	if j.Key != "" {
		j.Reason = ""
		if j.Queue == "" {
			j.Answer = nil
		}
	}
}

// waits reports whether j awaits its answer, and not in vain so far.
func (j *Row) waits(now time.Time) bool {
	return j.Phase == Awaiting && (j.Deadline.IsZero() || now.Before(j.Deadline))
}

// comesBack has a job that runs and is due handed out again, in the same run and the same attempt. It is false for one that is only to wait on.
func (j *Row) comesBack(now time.Time, lease time.Duration) bool {
	late := !j.Deadline.IsZero() && !j.Deadline.After(now)
	switch {
	case j.Phase == Answered:
	case j.answered(): // what sent the request has died before it knew
		j.Phase, j.Deadline = Answered, time.Time{}
	case late:
		j.Phase = Awaiting // also one whose request was never done: whoever was at it has died
	case j.Phase == Awaiting:
		j.Due = j.Deadline
		return false
	default:
		j.LastRun = now
	}
	j.Token++
	j.Due = micros(now.Add(lease))
	if j.Phase == "" {
		j.Due = j.within(j.Due)
	}
	return true
}

// within is t, or the deadline where that comes before.
func (j *Row) within(t time.Time) time.Time {
	if !j.Deadline.IsZero() && j.Deadline.Before(t) {
		return j.Deadline
	}
	return t
}

// renew prolongs the lease of j, if this token is at it, and reports whether it is to be saved. A request that is under way has no lease after the end of its attempt.
func (j *Row) renew(now time.Time, token int64, lease time.Duration) (changed bool, err error) {
	if err := j.current(token); err != nil {
		return false, err
	}
	switch {
	case j.State == RunQueued, j.waits(now): // nobody's lease
		return false, nil
	case j.State != Running:
		return false, ErrNotRunning
	}
	end := micros(now.Add(lease))
	if j.Phase == "" {
		end = j.within(end)
	}
	j.Due = end
	return true, nil
}

// lease has the lease of j, which is RUNNING, end after d; 0: never.
func (j *Row) lease(now time.Time, d time.Duration) {
	j.Due = time.Time{}
	if d > 0 {
		j.Due = micros(now.Add(d))
	}
}

// repeats tells whether the job repeats.
func (j *Row) repeats() bool { return j.Repeat != "" && !j.Mock }

// atWork returns an error unless j runs in the run that token names.
func (j *Row) atWork(token int64) error {
	if err := j.current(token); err != nil {
		return err
	}
	if !j.State.Runs() {
		return fmt.Errorf("%w: job %d is %s", ErrNotRunning, j.ID, j.State)
	}
	return nil
}

// give replaces the data by those that were given when a run ends, if any.
func (j *Row) give(data []byte) {
	if data != nil {
		j.Data = data
	}
	j.Handouts = 0
}

// unique reports whether j is a job that Unique means: it is in no queue, and it has not ended and is kept for a time only.
func (j *Row) unique() bool {
	return j.Queue == "" && (j.Expires.IsZero() || j.State == Failed)
}

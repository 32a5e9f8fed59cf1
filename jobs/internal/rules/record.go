package rules

import (
	"fmt"
	"time"

	"github.com/swarmiji/swarmiji/jobs/jobstore"
)

// SetDue sets Due from the state. lease is until when a RUNNING job is leased, zero for one that is not.
func SetDue(j *jobstore.Row, lease time.Time) {
	switch j.State {
	case jobstore.Queued, jobstore.RunQueued:
		j.Due = j.NextRun
	case jobstore.Running:
		j.Due = lease
	default:
		j.Due = time.Time{}
	}
}

// CheckToken returns an error if token names another run than the one j is in. 0 names none.
func CheckToken(j *jobstore.Row, token int64) error {
	switch {
	case token == 0:
		return nil
	case token != j.Token:
		return fmt.Errorf("%w: job %d, token %d, not %d", jobstore.ErrStale, j.ID, j.Token, token)
	case !j.State.Runs():
		return fmt.Errorf("%w: job %d is %s", jobstore.ErrStale, j.ID, j.State)
	}
	return nil
}

// IsKept reports whether a job is kept for a time when it has ended well, so that an answer that comes late or twice is told from one that nobody knows.
func IsKept(j *jobstore.Row) bool { return j.Queue != "" || j.Key != "" }

// StandsAlone reports whether a change of j concerns no other job.
func StandsAlone(j *jobstore.Row) bool { return j.SequenceKey == "" && j.Parent == 0 && !j.HasChildren }

// IsAnswered reports whether the present attempt of j has got its answer.
func IsAnswered(j *jobstore.Row) bool {
	return j.Phase == jobstore.Answered || j.Phase == "" && j.Key != "" && j.State.Runs() && (j.Answer != nil || j.Reason != "")
}

// EndAttempt has j be in no attempt.
func EndAttempt(j *jobstore.Row) { j.Phase, j.Deadline, j.Expires = "", time.Time{}, time.Time{} }

// LeaveAttempt ends an attempt of j after which it is to run again.
func LeaveAttempt(j *jobstore.Row) {
	EndAttempt(j)
	if IsKept(j) {
		j.Attempt = max(j.Attempt, 1)
		j.Answer, j.Reason = nil, ""
	}
}

// StartOver has j begin with its first attempt. The answer that a job of a queue has got last stays until then; what hands out others does not look.
func StartOver(j *jobstore.Row) {
	EndAttempt(j)
	j.Attempt = 0
	if j.Key != "" {
		j.Reason = ""
		if j.Queue == "" {
			j.Answer = nil
		}
	}
}

// AwaitsAnswer reports whether j awaits its answer, and not in vain so far.
func AwaitsAnswer(j *jobstore.Row, now time.Time) bool {
	return j.Phase == jobstore.Awaiting && (j.Deadline.IsZero() || now.Before(j.Deadline))
}

// Redeliver has a job that runs and is due handed out again, in the same run and the same attempt. It is false for one that is only to wait on.
func Redeliver(j *jobstore.Row, now time.Time, lease time.Duration) bool {
	late := !j.Deadline.IsZero() && !j.Deadline.After(now)
	switch {
	case j.Phase == jobstore.Answered:
	case IsAnswered(j): // what sent the request has died before it knew
		j.Phase, j.Deadline = jobstore.Answered, time.Time{}
	case late:
		j.Phase = jobstore.Awaiting // also one whose request was never done: whoever was at it has died
	case j.Phase == jobstore.Awaiting:
		j.Due = j.Deadline
		return false
	default:
		j.LastRun = now
	}
	j.Token++
	j.Due = Micros(now.Add(lease))
	if j.Phase == "" {
		j.Due = UntilDeadline(j, j.Due)
	}
	return true
}

// UntilDeadline is t, or the deadline where that comes before.
func UntilDeadline(j *jobstore.Row, t time.Time) time.Time {
	if !j.Deadline.IsZero() && j.Deadline.Before(t) {
		return j.Deadline
	}
	return t
}

// Renew prolongs the lease of j, if this token is at it, and reports whether it is to be saved. A request that is under way has no lease after the end of its attempt.
func Renew(j *jobstore.Row, now time.Time, token int64, lease time.Duration) (changed bool, err error) {
	if err := CheckToken(j, token); err != nil {
		return false, err
	}
	switch {
	case j.State == jobstore.RunQueued, AwaitsAnswer(j, now): // nobody's lease
		return false, nil
	case j.State != jobstore.Running:
		return false, jobstore.ErrNotRunning
	}
	end := Micros(now.Add(lease))
	if j.Phase == "" {
		end = UntilDeadline(j, end)
	}
	j.Due = end
	return true, nil
}

// SetLease has the lease of j, which is RUNNING, end after d; 0: never.
func SetLease(j *jobstore.Row, now time.Time, d time.Duration) {
	j.Due = time.Time{}
	if d > 0 {
		j.Due = Micros(now.Add(d))
	}
}

// Repeats tells whether the job repeats.
func Repeats(j *jobstore.Row) bool { return j.Repeat != "" && !j.Mock }

// CheckAtWork returns an error unless j runs in the run that token names.
func CheckAtWork(j *jobstore.Row, token int64) error {
	if err := CheckToken(j, token); err != nil {
		return err
	}
	if !j.State.Runs() {
		return fmt.Errorf("%w: job %d is %s", jobstore.ErrNotRunning, j.ID, j.State)
	}
	return nil
}

// SetData replaces the data by those that were given when a run ends, if any.
func SetData(j *jobstore.Row, data []byte) {
	if data != nil {
		j.Data = data
	}
	j.Handouts = 0
}

// IsUnique reports whether j is a job that Unique means: it is in no queue, and it has not ended and is kept for a time only.
func IsUnique(j *jobstore.Row) bool {
	return j.Queue == "" && (j.Expires.IsZero() || j.State == jobstore.Failed)
}

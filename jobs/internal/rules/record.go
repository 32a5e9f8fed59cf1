package rules

import (
	"fmt"
	"time"

	"github.com/swarmiji/swarmiji/jobs/jobstore"
)

// SetDue sets Due from the state. lease is the end of the lease of a RUNNING job, zero for others.
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

// CheckToken returns ErrStale if token is not that of the present attempt of j. 0 means any.
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

// IsKept reports whether a job is kept for a time after it has succeeded. A late or repeated answer
// is then told from an unknown one.
func IsKept(j *jobstore.Row) bool { return j.Queue != "" || j.Key != "" }

// StandsAlone reports whether a change of j concerns no other job.
func StandsAlone(j *jobstore.Row) bool { return j.SequenceKey == "" && j.Parent == 0 && !j.HasChildren }

// IsAnswered reports whether the answer to the present attempt of j has come.
func IsAnswered(j *jobstore.Row) bool {
	return j.Phase == jobstore.Answered || j.Phase == "" && j.Key != "" && j.State.Runs() && (j.Answer != nil || j.Reason != "")
}

// EndAttempt clears the fields of the attempt of j.
func EndAttempt(j *jobstore.Row) { j.Phase, j.Deadline, j.Expires = "", time.Time{}, time.Time{} }

// LeaveAttempt ends an attempt of j that is followed by another run.
func LeaveAttempt(j *jobstore.Row) {
	EndAttempt(j)
	if IsKept(j) {
		j.Attempt = max(j.Attempt, 1)
		j.Answer, j.Reason = nil, ""
	}
}

// StartOver makes the next attempt of j the first. A job of a queue keeps its last answer until
// then; for other jobs the answer is deleted now.
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

// AwaitsAnswer reports whether j awaits its answer, and its Deadline has not passed.
func AwaitsAnswer(j *jobstore.Row, now time.Time) bool {
	return j.Phase == jobstore.Awaiting && (j.Deadline.IsZero() || now.Before(j.Deadline))
}

// Redeliver restarts an attempt of a running job that is due: it expired, timed out or was
// answered. The run and the attempt stay the same. Returns false if the job only waits on.
func Redeliver(j *jobstore.Row, now time.Time, lease time.Duration) bool {
	late := !j.Deadline.IsZero() && !j.Deadline.After(now)
	switch {
	case j.Phase == jobstore.Answered:
	case IsAnswered(j): // the sender of the request died before it knew
		j.Phase, j.Deadline = jobstore.Answered, time.Time{}
	case late:
		j.Phase = jobstore.Awaiting // also if its request was never sent: its worker died
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

// UntilDeadline returns t, or the deadline if that is earlier.
func UntilDeadline(j *jobstore.Row, t time.Time) time.Time {
	if !j.Deadline.IsZero() && j.Deadline.Before(t) {
		return j.Deadline
	}
	return t
}

// Renew renews the lease of j if token is current. changed reports that j is to be saved. While a
// request is under way, the lease ends no later than the attempt.
func Renew(j *jobstore.Row, now time.Time, token int64, lease time.Duration) (changed bool, err error) {
	if err := CheckToken(j, token); err != nil {
		return false, err
	}
	switch {
	case j.State == jobstore.RunQueued, AwaitsAnswer(j, now): // it has no lease
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

// SetLease makes the lease of j, which is RUNNING, end after d; 0: never.
func SetLease(j *jobstore.Row, now time.Time, d time.Duration) {
	j.Due = time.Time{}
	if d > 0 {
		j.Due = Micros(now.Add(d))
	}
}

// Repeats reports whether the job repeats.
func Repeats(j *jobstore.Row) bool { return j.Repeat != "" && !j.Mock }

// CheckAtWork returns an error unless j runs in the attempt of token.
func CheckAtWork(j *jobstore.Row, token int64) error {
	if err := CheckToken(j, token); err != nil {
		return err
	}
	if !j.State.Runs() {
		return fmt.Errorf("%w: job %d is %s", jobstore.ErrNotRunning, j.ID, j.State)
	}
	return nil
}

// SetData replaces the data at the end of a run, unless data is nil.
func SetData(j *jobstore.Row, data []byte) {
	if data != nil {
		j.Data = data
	}
	j.Handouts = 0
}

// IsUnique reports whether Unique means j: it is in no queue, and is not merely kept for a time
// after a success.
func IsUnique(j *jobstore.Row) bool {
	return j.Queue == "" && (j.Expires.IsZero() || j.State == jobstore.Failed)
}

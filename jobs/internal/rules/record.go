package rules

import (
	"fmt"
	"time"

	"github.com/swarmiji/swarmiji/jobs/jobstore"
)

// SetDue sets Due of j, the time at which it may be claimed, from its state: NextRun of a QUEUED or
// RUNQUEUED job, lease of a RUNNING job, zero otherwise. lease is the end of the lease.
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

// CheckToken returns nil if token is 0, or if j runs and token is its token. Otherwise it returns
// an error that wraps ErrStale. With a token of 0 it does not check that j runs.
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

// IsKept reports whether the record of j is kept for a time after a success: j has a Queue or a
// Key. A late or repeated answer is then distinguished from an unknown one.
func IsKept(j *jobstore.Row) bool { return j.Queue != "" || j.Key != "" }

// StandsAlone reports whether no other job depends on j: it has no sequence key, no parent and no
// children.
func StandsAlone(j *jobstore.Row) bool { return j.SequenceKey == "" && j.Parent == 0 && !j.HasChildren }

// IsAnswered reports whether the answer to the current attempt of j, or a refusal, has come: Phase
// is Answered, or j runs with an empty Phase and has a Key and an Answer or a Reason.
func IsAnswered(j *jobstore.Row) bool {
	return j.Phase == jobstore.Answered || j.Phase == "" && j.Key != "" && j.State.Runs() && (j.Answer != nil || j.Reason != "")
}

// EndAttempt clears the fields of j that belong to one attempt: Phase, Deadline and Expires.
func EndAttempt(j *jobstore.Row) { j.Phase, j.Deadline, j.Expires = "", time.Time{}, time.Time{} }

// LeaveAttempt ends the current attempt of j, which another attempt or run follows. It clears
// Phase, Deadline and Expires. For a job with a Queue or a Key it also clears Answer and Reason,
// and sets Attempt to at least 1. It does not change State and does not save j.
func LeaveAttempt(j *jobstore.Row) {
	EndAttempt(j)
	if IsKept(j) {
		j.Attempt = max(j.Attempt, 1)
		j.Answer, j.Reason = nil, ""
	}
}

// StartOver sets Attempt of j to 0, so that its next attempt is the first one. It clears Phase,
// Deadline and Expires. A job with a Key also loses its Reason, and its Answer unless it has a
// Queue. It does not change State and does not save j.
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

// AwaitsAnswer reports whether j awaits its answer (Phase Awaiting) and its Deadline has not passed
// at now. A zero Deadline never passes.
func AwaitsAnswer(j *jobstore.Row, now time.Time) bool {
	return j.Phase == jobstore.Awaiting && (j.Deadline.IsZero() || now.Before(j.Deadline))
}

// Redeliver claims a running job of a queue that is due: its lease or deadline has passed, or its
// answer has come. It increases Token and sets a lease of this duration. Run and attempt continue.
//
// Phase becomes Answered if the answer has come, and Awaiting after the Deadline. After the end of
// a lease Phase stays "", LastRun becomes now, and the new lease ends no later than the Deadline.
//
// Returns false if j must still wait for its answer; only Due has then changed, to its Deadline.
// The caller saves j.
func Redeliver(j *jobstore.Row, now time.Time, lease time.Duration) bool {
	late := !j.Deadline.IsZero() && !j.Deadline.After(now)
	switch {
	case j.Phase == jobstore.Answered:
	case IsAnswered(j): // the sender of the request died before it handled the answer
		j.Phase, j.Deadline = jobstore.Answered, time.Time{}
	case late:
		j.Phase = jobstore.Awaiting // also if the request was never sent because its worker died
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

// UntilDeadline returns t, or the Deadline of j if that is earlier.
func UntilDeadline(j *jobstore.Row, t time.Time) time.Time {
	if !j.Deadline.IsZero() && j.Deadline.Before(t) {
		return j.Deadline
	}
	return t
}

// Renew sets the end of the lease of j, which is its Due, to now plus lease. While a worker works
// on j (Phase ""), the lease ends no later than the Deadline. changed reports that the caller must
// save j. It changes nothing, without an error, for a RUNQUEUED job or one that awaits its answer.
//
// Returns ErrStale if token is not 0 and is not that of the running attempt. Returns ErrNotRunning
// if token is 0 and j does not run.
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

// SetLease sets Due of j, which is RUNNING, to the end of its lease: now plus d. With a d of 0 the
// lease has no end, and Due becomes zero.
func SetLease(j *jobstore.Row, now time.Time, d time.Duration) {
	j.Due = time.Time{}
	if d > 0 {
		j.Due = Micros(now.Add(d))
	}
}

// Repeats reports whether the job repeats. A mock job never does.
func Repeats(j *jobstore.Row) bool { return j.Repeat != "" && !j.Mock }

// CheckAtWork returns nil if j runs and token is 0 or its token. Returns an error that wraps
// ErrStale if token is not 0 and does not match or j does not run. Returns ErrNotRunning if token
// is 0 and j does not run.
func CheckAtWork(j *jobstore.Row, token int64) error {
	if err := CheckToken(j, token); err != nil {
		return err
	}
	if !j.State.Runs() {
		return fmt.Errorf("%w: job %d is %s", jobstore.ErrNotRunning, j.ID, j.State)
	}
	return nil
}

// SetData replaces the data of j at the end of an attempt, unless data is nil. It also sets
// Handouts, the count of claims by RetryAfter, to 0.
func SetData(j *jobstore.Row, data []byte) {
	if data != nil {
		j.Data = data
	}
	j.Handouts = 0
}

package jobs

import (
	"context"
	"time"
)

// kept reports whether a job is kept for a time when it has ended well, so that an answer that comes late or twice is told from one that nobody knows.
func (j *Row) kept() bool { return j.Queue != "" || j.Key != "" }

// alone reports whether a change of j concerns no other job.
func (j *Row) alone() bool { return j.SequenceKey == "" && j.Parent == 0 && !j.HasChildren }

// answered reports whether the present attempt of j has got its answer.
func (j *Row) answered() bool {
	return j.Phase == Answered || j.Phase == "" && j.Key != "" && j.State.Runs() && (j.Answer != nil || j.Reason != "")
}

// end makes j over. One that is kept, and nobody's child or parent, is given the time at which it is deleted. Phase tells of one that has got its answer.
func (t *step) end(ctx context.Context, j *Row, state State) error {
	if j.answered() {
		j.Phase = Answered
	} else {
		j.Phase = ""
	}
	j.State = state
	j.Deadline, j.Expires = time.Time{}, time.Time{}
	if !j.kept() || j.Parent != 0 {
		return nil
	}
	if j.HasChildren {
		if left, err := t.tx.Children(ctx, j.ID, Page{Limit: 1}); err != nil || len(left) > 0 {
			return err
		}
	}
	j.Expires = t.now.Add(t.s.c.Keep)
	return nil
}

// fail makes j FAILED.
func (t *step) fail(ctx context.Context, j *Row, reason string) error {
	err := t.end(ctx, j, Failed)
	j.Reason = cutReason(reason)
	return err
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

// goOn has what looks at answers take j, which has its answer.
func (t *step) goOn(ctx context.Context, j *Row) error {
	if j.Phase != "" || j.State != Running { // who is at it, such as at its timeout, is not any more
		j.Token++
	}
	j.State, j.Phase, j.Deadline, j.Due = Running, Answered, time.Time{}, t.now
	return t.save(ctx, j)
}

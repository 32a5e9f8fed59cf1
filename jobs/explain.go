package jobs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/swarmiji/swarmiji/jobs/jobstore"
)

// Explanation describes why a job does not run, or the cause of its wait.
type Explanation struct {
	Job Job
	// At is the store's time at which the job was read.
	At time.Time
	// Reasons contains at least one reason, the most important one first.
	Reasons []Why
}

// String returns the texts of all reasons, one per line, the most important one first.
func (e Explanation) String() string {
	lines := make([]string, len(e.Reasons))
	for i, w := range e.Reasons {
		lines[i] = w.Text
	}
	return strings.Join(lines, "\n")
}

// Why is one reason of an [Explanation].
type Why struct {
	Kind WhyKind
	// Text is the reason as an English sentence.
	Text string
	// At is the time at which the reason ends or began, as Kind says. Zero: unknown.
	At time.Time
	// Job is the id of another job that the reason names. 0: no job.
	Job ID
	// Key is the sequence key or the answer's key that the reason names. "": no key.
	Key string
}

// WhyKind is the kind of a [Why].
type WhyKind string

// The kinds.
const (
	WhyRuns     WhyKind = "runs"     // it runs
	WhyAnswer   WhyKind = "answer"   // it awaits an answer from outside, until At
	WhyAnswered WhyKind = "answered" // its answer has come, and no worker has handled it yet
	// no answer came in time, and no worker has handled the timeout yet
	WhyTimedOut  WhyKind = "timed out"
	WhyLost      WhyKind = "lost"      // its lease has ended: its worker died or is disconnected
	WhyDue       WhyKind = "due"       // it is due at At, or has been due since At
	WhyRetry     WhyKind = "retry"     // its last attempt failed, and the next one starts at At
	WhyWindow    WhyKind = "window"    // its window opens at At
	WhyThrottled WhyKind = "throttled" // the limit, an earlier job or the throttler blocks it
	WhyNoRunner  WhyKind = "no runner" // no runner serves its queue
	WhyBusy      WhyKind = "busy"      // all workers of its queue's runner are busy
	WhySequence  WhyKind = "sequence"  // it waits for Job, which has the same sequence key
	WhyChildren  WhyKind = "children"  // it waits for its children; Job is one of them
	WhyParent    WhyKind = "parent"    // it waits until its parent, Job, is PAUSED
	WhyOver      WhyKind = "over"      // it is over
)

// Explain returns why a job does not run, or the cause of its wait, as English sentences. It only
// reads and works in any process. A leader decides which jobs of a queue start; Explain reads its
// decisions from the status that it stores, which may be some seconds old. Returns [ErrNotFound] if
// the job does not exist, and errors of the store.
func (s *Service) Explain(ctx context.Context, id ID) (Explanation, error) {
	var e Explanation
	err := s.c.Store.View(ctx, func(ctx context.Context, tx jobstore.Tx) (err error) {
		e = Explanation{}
		x := explainer{s: s, tx: tx, Explanation: &e}
		j, err := tx.Get(ctx, id)
		if err != nil {
			return err
		}
		e.Job, x.row = j.Job, &j
		if e.At, err = tx.Now(ctx); err != nil {
			return err
		}
		return x.explain(ctx)
	})
	if err != nil {
		return Explanation{}, err
	}
	return e, nil
}

// explainer collects the reasons for one job in one read transaction.
type explainer struct {
	s   *Service
	tx  jobstore.Tx
	row *Row
	*Explanation
}

// add formats the text of w and appends w to the reasons.
func (x *explainer) add(w Why, text string, args ...any) {
	w.Text = fmt.Sprintf(text, args...)
	x.Reasons = append(x.Reasons, w)
}

// explain adds the reasons that apply to the state of the job: at least one, the most important one
// first. Returns errors of reading other records.
func (x *explainer) explain(ctx context.Context) error {
	switch {
	case x.Job.State.Over():
		x.explainOver()
	case x.Job.State.Runs():
		x.explainRunning()
	case x.Job.State == Paused:
		return x.explainPaused(ctx)
	case x.Job.State == Waiting:
		return x.explainWaiting(ctx)
	default:
		return x.explainQueued(ctx)
	}
	return nil
}

// stamp formats a time in UTC, to the second.
func stamp(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") }

// because returns ": " and the reason, or "" without a reason.
func because(reason string) string {
	if reason == "" {
		return ""
	}
	return ": " + reason
}

// explainOver adds the state of a job that is over, with its Reason if it has one. It adds a second
// reason with the time of its deletion if the record is deleted by time.
func (x *explainer) explainOver() {
	j := x.row
	x.add(Why{Kind: WhyOver, At: j.Changed}, "It has been %s since %s%s.", j.State, stamp(j.Changed), because(j.Reason))
	if !j.Expires.IsZero() {
		x.add(Why{Kind: WhyOver, At: j.Expires}, "Its record is deleted at %s.", stamp(j.Expires))
	}
}

// explainRunning adds the one reason of a running job: its answer, the end of its wait for one, its
// next claim, or its lease.
func (x *explainer) explainRunning() {
	j := x.row
	late := !j.Deadline.IsZero() && !j.Deadline.After(x.At)
	switch {
	case j.Phase == Answered:
		x.add(Why{Kind: WhyAnswered, Key: j.Key}, "The answer for key %q has come, and a runner must handle it.", j.Key)
	case j.Phase == Awaiting && late:
		x.add(Why{Kind: WhyTimedOut, At: j.Deadline, Key: j.Key}, "No answer for key %q came by %s, and a runner must handle the timeout.", j.Key, stamp(j.Deadline))
	case j.Phase == Awaiting && j.Deadline.IsZero():
		x.add(Why{Kind: WhyAnswer, Key: j.Key}, "It awaits the answer for key %q, without a time limit.", j.Key)
	case j.Phase == Awaiting:
		x.add(Why{Kind: WhyAnswer, At: j.Deadline, Key: j.Key}, "It awaits the answer for key %q until %s.", j.Key, stamp(j.Deadline))
	case j.State == RunQueued:
		x.add(Why{Kind: WhyRuns, At: j.NextRun}, "It has been running since %s, and is claimed again at %s if it has not ended by then.", stamp(j.LastRun), stamp(j.NextRun))
	case !j.Due.IsZero() && !j.Due.After(x.At):
		x.add(Why{Kind: WhyLost, At: j.Due}, "It started at %s, but its worker did not renew the lease, which ended at %s. It will run again.", stamp(j.LastRun), stamp(j.Due))
	default:
		lease := ""
		if !j.Due.IsZero() {
			lease = ", and its lease ends at " + stamp(j.Due)
		}
		x.add(Why{Kind: WhyRuns, At: j.LastRun}, "It has been running since %s%s%s.", stamp(j.LastRun), attempt(j), lease)
	}
}

// attempt returns ", in attempt N" for the second and later attempts, else "".
func attempt(j *Row) string {
	if j.Attempt < 2 {
		return ""
	}
	return fmt.Sprintf(", in attempt %d", j.Attempt)
}

// explainWaiting adds the reason of a WAITING job: the current job of its sequence and the state
// of that job. If this job has ended meanwhile, the reason names only the sequence key. Returns
// errors of the store.
func (x *explainer) explainWaiting(ctx context.Context) error {
	key := x.Job.SequenceKey
	id, err := firstOf(ctx, x.tx, key, sequenceHolders()...)
	if err != nil {
		return err
	}
	first, err := x.tx.Get(ctx, id)
	// the first job has ended since
	if errors.Is(err, ErrNotFound) || err == nil && !slices.Contains(sequenceHolders(), first.State) {
		x.add(Why{Kind: WhySequence, Key: key}, "It waits for an earlier job of sequence key %q.", key)
		return nil
	}
	if err != nil {
		return err
	}
	x.add(Why{Kind: WhySequence, Job: first.ID, Key: key}, "It waits for job %d of sequence key %q, %s.", first.ID, key, doing(&first))
	return nil
}

// doing returns a relative clause with the present activity of a job: "which awaits the answer for
// key …", "which is QUEUED for" and its NextRun, or "which is" and its state.
func doing(j *Row) string {
	switch {
	case j.Phase == Awaiting:
		return fmt.Sprintf("which awaits the answer for key %q", j.Key)
	case j.State == Queued:
		return "which is QUEUED for " + stamp(j.NextRun)
	}
	return "which is " + string(j.State)
}

// explainPaused adds the reasons of a PAUSED job. A child waits for its parent. Any other job waits
// for its pending children: it adds one reason for each of the first three, and their number if
// there are more. It counts at most 256 children; the text then says "256 children in all, or
// more". If no child is pending any more, the reason names no child. Returns errors of the store.
func (x *explainer) explainPaused(ctx context.Context) error {
	if x.Job.Parent != 0 {
		x.add(Why{Kind: WhyParent, Job: x.Job.Parent}, "It waits until its parent, job %d, has finished its run and is PAUSED.", x.Job.Parent)
		return nil
	}
	found, err := x.tx.Children(ctx, x.Job.ID, jobstore.Page{States: pending(), Limit: page})
	if err != nil {
		return err
	}
	for i := range found[:min(len(found), 3)] {
		c := &found[i]
		x.add(Why{Kind: WhyChildren, Job: c.ID}, "It waits for its child, job %d, %s.", c.ID, doing(c))
	}
	switch n := len(found); {
	case n == 0:
		x.add(Why{Kind: WhyChildren}, "It waits for its children.")
	case n == page:
		x.add(Why{Kind: WhyChildren}, "It waits for %d children in all, or more.", n)
	case n > 3:
		x.add(Why{Kind: WhyChildren}, "It waits for %d children in all.", n)
	}
	return nil
}

// explainQueued adds the reasons of a QUEUED job. A job that is not due waits for its time, window
// or next attempt (explainNotDue). A due job of a queue waits for its leader (explainDueInQueue).
// Any other due job waits for a free worker; a failed attempt is a second reason. Returns errors of
// the store.
func (x *explainer) explainQueued(ctx context.Context) error {
	j := x.row
	if j.NextRun.After(x.At) {
		x.explainNotDue()
		return nil
	}
	if j.Queue != "" {
		return x.explainDueInQueue(ctx)
	}
	x.add(Why{Kind: WhyDue, At: j.NextRun}, "It has been due since %s, and no free worker runs %q.", stamp(j.NextRun), j.Name)
	x.addRetry()
	return nil
}

// addUnreadable adds the reason of a job whose windows this process cannot parse; err is the error.
func (x *explainer) addUnreadable(err error) {
	x.add(Why{Kind: WhyWindow}, "This process cannot parse its windows, and a runner that cannot parse them does not start it: %v.", err)
}

// explainNotDue adds the reasons why a QUEUED job is not due yet: a window that is closed or cannot
// be parsed, a failed attempt, or NextRun. Call it only if NextRun is in the future.
func (x *explainer) explainNotDue() {
	j := x.row
	switch open, err := x.s.windows.Opens(j, x.At); {
	case err != nil:
		x.addUnreadable(err)
		return
	case open.After(x.At) && !j.NextRun.After(open):
		x.add(Why{Kind: WhyWindow, At: j.NextRun}, "Its window opens at %s.", stamp(j.NextRun))
		x.addRetry()
		return
	}
	if x.addRetry() {
		return
	}
	x.add(Why{Kind: WhyDue, At: j.NextRun}, "It is due at %s.", stamp(j.NextRun))
}

// addRetry adds the last attempt, which failed or does not count, with its Reason, and the time of
// the next attempt. It reports whether it added a reason. It adds nothing if the job has no Reason.
func (x *explainer) addRetry() bool {
	j := x.row
	switch {
	case j.Reason == "":
		return false
	case j.Attempt == 0:
		x.add(Why{Kind: WhyRetry, At: j.NextRun}, "Its last attempt does not count, and the next one begins at %s%s.", stamp(j.NextRun), because(j.Reason))
		return true
	}
	x.add(Why{Kind: WhyRetry, At: j.NextRun}, "Attempt %d has failed, and attempt %d begins at %s%s.", j.Attempt, j.Attempt+1, stamp(j.NextRun), because(j.Reason))
	return true
}

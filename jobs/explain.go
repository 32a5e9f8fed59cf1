package jobs

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/swarmiji/swarmiji/jobs/jobstore"
)

// Explanation says why a job does not run, or what it does.
type Explanation struct {
	Job Job
	// At is the store's time of the explanation.
	At time.Time
	// Reasons holds at least one reason, the most important one first.
	Reasons []Why
}

// String returns all reasons, one per line.
func (e Explanation) String() string {
	lines := make([]string, len(e.Reasons))
	for i, w := range e.Reasons {
		lines[i] = w.Text
	}
	return strings.Join(lines, "\n")
}

// Why is one reason.
type Why struct {
	Kind WhyKind
	// Text is a sentence.
	Text string
	// At is when this changes, or did. Zero: unknown.
	At time.Time
	// Job is another job of this reason. 0: none.
	Job ID
	// Key is the sequence key, or the key of an answer, of this reason. "": none.
	Key string
}

// WhyKind is the kind of a [Why].
type WhyKind string

// The kinds.
const (
	WhyRuns      WhyKind = "runs"      // it runs
	WhyAnswer    WhyKind = "answer"    // it awaits an answer from outside, until At
	WhyAnswered  WhyKind = "answered"  // its answer has come, and no worker has handled it yet
	WhyTimedOut  WhyKind = "timed out" // no answer came in time, and no worker has handled that yet
	WhyLost      WhyKind = "lost"      // its lease has ended: its worker died or is cut off
	WhyDue       WhyKind = "due"       // it is due at At, or has been since then
	WhyRetry     WhyKind = "retry"     // its last attempt has failed, and another one comes at At
	WhyWindow    WhyKind = "window"    // its window opens at At
	WhyThrottled WhyKind = "throttled" // the limit, an earlier job or the throttler blocks it
	WhyNoRunner  WhyKind = "no runner" // no runner serves its queue
	WhyBusy      WhyKind = "busy"      // all workers of its queue's runner are busy
	WhySequence  WhyKind = "sequence"  // it waits for Job, which has the same sequence key
	WhyChildren  WhyKind = "children"  // it waits for its children, of which Job is one
	WhyParent    WhyKind = "parent"    // it waits until its parent, Job, is PAUSED
	WhyOver      WhyKind = "over"      // it has ended
)

// Explain says in plain sentences why a job does not run, or what it does. It only reads, and works
// in any process. It knows the decisions of a throttler from the Status of the queue, which may be
// some seconds old.
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

// explainer collects reasons.
type explainer struct {
	s   *Service
	tx  jobstore.Tx
	row *Row
	*Explanation
}

func (x *explainer) add(w Why, text string, args ...any) {
	w.Text = fmt.Sprintf(text, args...)
	x.Reasons = append(x.Reasons, w)
}

// explain collects the reasons by the state of the job.
func (x *explainer) explain(ctx context.Context) error {
	switch {
	case x.Job.State.Over():
		x.overs()
	case x.Job.State.Runs():
		x.runs()
	case x.Job.State == Paused:
		return x.paused(ctx)
	case x.Job.State == Waiting:
		return x.waits(ctx)
	default:
		return x.queued(ctx)
	}
	return nil
}

// stamp formats a time.
func stamp(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") }

// because formats the Reason of a job.
func because(reason string) string {
	if reason == "" {
		return ""
	}
	return ": " + reason
}

func (x *explainer) overs() {
	j := x.row
	x.add(Why{Kind: WhyOver, At: j.Changed}, "It is %s since %s%s.", j.State, stamp(j.Changed), because(j.Reason))
	if !j.Expires.IsZero() {
		x.add(Why{Kind: WhyOver, At: j.Expires}, "It is kept until %s.", stamp(j.Expires))
	}
}

func (x *explainer) runs() {
	j := x.row
	late := !j.Deadline.IsZero() && !j.Deadline.After(x.At)
	switch {
	case j.Phase == Answered:
		x.add(Why{Kind: WhyAnswered, Key: j.Key}, "There is an answer for key %q, at which its runner is to look.", j.Key)
	case j.Phase == Awaiting && late:
		x.add(Why{Kind: WhyTimedOut, At: j.Deadline, Key: j.Key}, "No answer for key %q came until %s, to which its runner is to see.", j.Key, stamp(j.Deadline))
	case j.Phase == Awaiting && j.Deadline.IsZero():
		x.add(Why{Kind: WhyAnswer, Key: j.Key}, "It awaits the answer for key %q, for as long as that takes.", j.Key)
	case j.Phase == Awaiting:
		x.add(Why{Kind: WhyAnswer, At: j.Deadline, Key: j.Key}, "It awaits the answer for key %q until %s.", j.Key, stamp(j.Deadline))
	case j.State == RunQueued:
		x.add(Why{Kind: WhyRuns, At: j.NextRun}, "It runs since %s, and is handed out again at %s if it has not ended by then.", stamp(j.LastRun), stamp(j.NextRun))
	case !j.Due.IsZero() && !j.Due.After(x.At):
		x.add(Why{Kind: WhyLost, At: j.Due}, "It was begun at %s, but who ran it has not been heard of: its lease ended at %s, and it is to be run again.", stamp(j.LastRun), stamp(j.Due))
	default:
		x.add(Why{Kind: WhyRuns, At: j.LastRun}, "It runs since %s%s.", stamp(j.LastRun), attempt(j))
	}
}

// attempt names the attempt of a job, if attempts are counted.
func attempt(j *Row) string {
	if j.Attempt < 2 {
		return ""
	}
	return fmt.Sprintf(", in attempt %d", j.Attempt)
}

// waits explains a job that waits for the turn of its sequence key.
func (x *explainer) waits(ctx context.Context) error {
	key := x.Job.SequenceKey
	found, err := x.tx.OfSequence(ctx, key, jobstore.Page{States: holding(), Limit: 1})
	if err != nil {
		return err
	}
	if len(found) == 0 { // that job is over since
		x.add(Why{Kind: WhySequence, Key: key}, "It waits for its turn among the jobs of sequence key %q.", key)
		return nil
	}
	first := &found[0]
	x.add(Why{Kind: WhySequence, Job: first.ID, Key: key}, "It waits for its turn among the jobs of sequence key %q, which job %d has, %s.", key, first.ID, doing(first))
	return nil
}

// doing says what a job does, as a part of a sentence.
func doing(j *Row) string {
	switch {
	case j.Phase == Awaiting:
		return fmt.Sprintf("which awaits the answer for key %q", j.Key)
	case j.State == Queued:
		return "which is QUEUED for " + stamp(j.NextRun)
	}
	return "which is " + string(j.State)
}

// paused explains a job that waits for its children or its parent.
func (x *explainer) paused(ctx context.Context) error {
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

// queued explains a QUEUED job.
func (x *explainer) queued(ctx context.Context) error {
	j := x.row
	if j.NextRun.After(x.At) {
		x.later()
		return nil
	}
	if j.Queue != "" {
		return x.inLine(ctx)
	}
	x.add(Why{Kind: WhyDue, At: j.NextRun}, "It is due since %s, and nobody who runs %q has taken it: none does, or all of them are busy.", stamp(j.NextRun), j.Name)
	x.retried()
	return nil
}

// unread explains windows that this process cannot read.
func (x *explainer) unread(err error) {
	x.add(Why{Kind: WhyWindow}, "Its windows cannot be read here, and no runner that cannot read them starts it: %v.", err)
}

// later explains a job whose time has not come.
func (x *explainer) later() {
	j := x.row
	switch open, err := x.s.windows.Opens(j, x.At); {
	case err != nil:
		x.unread(err)
		return
	case open.After(x.At) && !j.NextRun.After(open):
		x.add(Why{Kind: WhyWindow, At: j.NextRun}, "Its window opens at %s.", stamp(j.NextRun))
		x.retried()
		return
	}
	if x.retried() {
		return
	}
	x.add(Why{Kind: WhyDue, At: j.NextRun}, "It is due at %s.", stamp(j.NextRun))
}

// retried adds the failed attempts before this one.
func (x *explainer) retried() bool {
	j := x.row
	if j.Reason == "" || j.Attempt == 0 {
		return false
	}
	x.add(Why{Kind: WhyRetry, At: j.NextRun}, "Attempt %d has failed, and attempt %d is to begin at %s%s.", j.Attempt, j.Attempt+1, stamp(j.NextRun), because(j.Reason))
	return true
}

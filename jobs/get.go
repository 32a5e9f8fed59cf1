package jobs

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/swarmiji/swarmiji/jobs/internal/rules"
	"github.com/swarmiji/swarmiji/jobs/internal/txn"
	"github.com/swarmiji/swarmiji/jobs/jobstore"
)

// Request selects due jobs for Get.
type Request struct {
	// Selector selects the jobs. Its Pattern has at most [MaxName] bytes.
	Selector
	// Lease is how long a job stays with its worker. Without a Renew by then it is due again. It
	// does not concern a job with RetryAfter. 0: no end. It is rounded up to microseconds.
	Lease time.Duration
	// Max is the most jobs to return. Default: 1. At most [MaxTake].
	Max int
	// Wait: wait until a job is due, or ctx ends.
	Wait bool
}

// MaxTake is the most jobs that one Get returns.
const MaxTake = 1000

// maxRetries is how often a job with RetryAfter is claimed in one run.
const maxRetries = 10

// manual is the prefix of names of jobs that are claimed again without limit.
const manual = "manual"

// Get claims the first due jobs, in the order of Priority, then of due time. Each job goes to one
// caller. It is RUNNING, or RUNQUEUED if it has RetryAfter. Callers that wait for the same jobs are
// served in the order in which they came. A claim for a caller whose ctx has ended goes to the next
// caller, or is given back.
//
// Returns [ErrNoJob] if no job is due; with Wait, if ctx ends before one is due. Otherwise there is
// at least one job. After ErrUnavailable, jobs may stay RUNNING until their lease or RetryAfter
// ends.
func (s *Service) Get(ctx context.Context, r Request) ([]Handout, error) {
	if err := r.check(); err != nil {
		return nil, err
	}
	return s.wait.Get(ctx, r.Selector, r.Lease, r.Max, r.Wait)
}

func (r *Request) check() error {
	switch {
	case r.Pattern == "" && len(r.Names) == 0:
		return &FieldError{Field: "name", Problem: rules.Missing}
	case r.Pattern != "" && len(r.Names) > 0:
		return &FieldError{Field: "name", Problem: "a pattern and names"}
	case len(r.Pattern) > MaxName || !utf8.ValidString(r.Pattern) || strings.IndexByte(r.Pattern, 0) >= 0:
		return &FieldError{Field: "name", Problem: rules.Malformed}
	case r.Lease < 0:
		return &FieldError{Field: "lease", Problem: rules.Malformed}
	case r.Max < 0 || r.Max > MaxTake:
		return &FieldError{Field: "numResults", Problem: rules.Malformed, Detail: fmt.Sprintf("%d is not from 1 to %d", r.Max, MaxTake)}
	}
	for _, name := range r.Names {
		if err := rules.CheckField("name", name, false); err != nil {
			return err
		}
	}
	if r.Max == 0 {
		r.Max = 1
	}
	r.Lease = rules.WholeMicros(r.Lease)
	return rules.CheckPriority(r.Priority)
}

// take claims up to limit jobs; none is no error. With an error there may be jobs, too.
func (s *Service) take(ctx context.Context, sel Selector, lease time.Duration, limit int) ([]Handout, error) {
	out, rest, err := s.takeSimple(ctx, sel, lease, limit)
	if rest && len(out) < limit { // the next job needs the rules
		var more []Handout
		more, err = s.takeAny(ctx, sel, lease, limit-len(out))
		out = append(out, more...)
	}
	for i := range out {
		if out[i].Phase == Awaiting {
			s.count.timedOut.Add(1)
		}
		if out[i].GivenUp {
			s.count.givenUp.Add(1)
		} else {
			s.count.taken.Add(1)
		}
	}
	return out, err
}

// takeSimple claims simple jobs in one step, up to the first that is not simple. rest reports that
// there is one.
func (s *Service) takeSimple(ctx context.Context, sel Selector, lease time.Duration, limit int) (out []Handout, rest bool, err error) {
	if s.noTaker.Load() {
		return nil, true, nil
	}
	var found []Row
	var asked time.Time
	err = s.c.Store.Single(ctx, func(ctx context.Context, tx jobstore.Tx) error {
		found, rest, asked = nil, true, time.Now()
		t, ok := tx.(jobstore.Taker)
		if !ok {
			s.noTaker.Store(true)
			return nil
		}
		var err error
		found, rest, err = t.Take(ctx, Due{Selector: sel}, limit, lease)
		return err
	})
	if err != nil {
		return nil, false, err
	}
	out = make([]Handout, len(found))
	for i := range found {
		out[i] = Handout{Row: found[i], Before: Before{State: Queued, NextRun: found[i].NextRun}, Asked: asked}
		if lease > 0 && found[i].Token != found[i].Run { // it may have been RUNNING, and its lease ended
			out[i].Before.State = Running
		}
	}
	for i := range out {
		if j := &out[i].Row; j.Phase == "" && rules.IsAnswered(j) { // its worker died before it knew
			if err := s.notice(ctx, j); err != nil {
				return out, false, err
			}
		}
	}
	return out, rest, nil
}

// notice stores that the answer of a job is there, which was claimed in one step.
func (s *Service) notice(ctx context.Context, j *Row) error {
	var l txn.Locks
	return s.txn.Do(ctx, &l, func(ctx context.Context, t *txn.Step) error {
		now, err := t.Tx.Get(ctx, j.ID)
		if err == nil && now.Token == j.Token && rules.IsAnswered(&now) {
			now.Phase, now.Deadline = Answered, time.Time{}
			*j = now
			err = t.Tx.Save(ctx, &now)
		}
		if errors.Is(err, ErrNotFound) {
			err = nil
		}
		return err
	})
}

// takeAny claims jobs by the rules.
func (s *Service) takeAny(ctx context.Context, sel Selector, lease time.Duration, limit int) ([]Handout, error) {
	var l txn.Locks
	var out []Handout
	err := s.txn.Do(ctx, &l, func(ctx context.Context, t *txn.Step) error {
		found, err := t.Tx.Due(ctx, Due{Selector: sel}, limit)
		if err != nil {
			return err
		}
		out = make([]Handout, len(found))
		save := make([]*Row, len(found))
		for i := range found {
			j := &found[i]
			out[i] = Handout{Before: Before{State: j.State, NextRun: j.NextRun}, Asked: t.Asked}
			if out[i].GivenUp, err = s.handOut(ctx, t, j, lease); err != nil {
				return err
			}
			save[i] = j
			out[i].Row = *j
		}
		if len(save) == 0 {
			return nil
		}
		if err := t.Tx.Save(ctx, save...); err != nil {
			return err
		}
		for i := range found {
			if out[i].GivenUp {
				if err := s.after(ctx, t, &found[i]); err != nil {
					return err
				}
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if err := s.addRelatives(ctx, out); err != nil {
		for i := range out {
			s.returned(out[i])
		}
		return nil, err
	}
	return out, nil
}

// handOut claims j, or fails it if it was claimed too often.
func (s *Service) handOut(ctx context.Context, t *txn.Step, j *Row, lease time.Duration) (givenUp bool, err error) {
	if rules.IsAnswered(j) { // its worker died before it knew
		j.Phase, j.Deadline = Answered, time.Time{}
	}
	if j.Phase != "" { // its answer or its timeout is to be handled
		j.Changed, j.LastRun, j.State = t.Now, t.Now, Running
		j.Token++
		rules.SetLease(j, t.Now, lease)
		return false, nil
	}
	wasQueued := j.State == Queued
	k := int32(1)
	if !wasQueued {
		k = j.Handouts + 1
	}
	j.Changed = t.Now
	if j.RetryAfter != "" && k > maxRetries {
		if err := t.Locks.AddJob(j); err != nil {
			return false, err
		}
		err := s.fail(ctx, t, j, fmt.Sprintf("it was handed out %d times, and did not end", maxRetries))
		rules.SetDue(j, time.Time{})
		return true, err
	}
	if wasQueued {
		j.Run++
		j.Scheduled = j.NextRun
	}
	if j.State != Running { // after the end of a lease the attempt goes on
		j.Attempt++
	}
	j.Token++
	j.LastRun = t.Now
	if j.RetryAfter != "" {
		j.State = RunQueued
		rules.SetDue(j, time.Time{})
		return false, s.comeAgain(t, j, k)
	}
	j.State = Running
	rules.SetLease(j, t.Now, lease)
	return false, nil
}

// comeAgain sets when a job with RetryAfter is claimed again, for the k-th time now, and counts
// that.
func (s *Service) comeAgain(t *txn.Step, j *Row, k int32) error {
	r, err := rules.ParseRetryAfter(j.RetryAfter)
	if err != nil {
		return err
	}
	again, err := exactly(r, t.Now)
	if err != nil || !rules.InRange(again) {
		again = time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)
	}
	if rules.Repeats(j) {
		_, repeat, err := s.checkRepeat(j.Repeat)
		if err != nil {
			return err
		}
		// A next run in the past, while missed runs are made up for, would run the job twice at a
		// time.
		if next, err := s.repeatFrom(repeat, j.Scheduled, t.Now, t.Now); err == nil && next.After(t.Now) && next.Before(again) {
			again = next
		}
	}
	j.NextRun = again
	rules.SetDue(j, time.Time{})
	if !strings.HasPrefix(j.Name, manual) {
		j.Handouts = k
	}
	return nil
}

// addRelatives adds the data of parents and children. It reads after the claim, without locks: to
// lock a parent after its child is the wrong order.
func (s *Service) addRelatives(ctx context.Context, out []Handout) error {
	related := false
	for i := range out {
		related = related || hasRelatives(&out[i])
	}
	if !related {
		return nil
	}
	return s.c.Store.View(ctx, func(ctx context.Context, tx jobstore.Tx) error {
		for i := range out {
			h := &out[i]
			h.ParentData, h.FinishedChildren, h.CancelledChildren = nil, nil, nil
			if !hasRelatives(h) {
				continue
			}
			if h.Parent != 0 {
				p, err := tx.Get(ctx, h.Parent)
				if err != nil && !errors.Is(err, ErrNotFound) {
					return err
				}
				h.ParentData = p.Data
			}
			if h.HasChildren {
				if err := addChildren(ctx, tx, h); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// hasRelatives reports whether h shows a parent or children.
func hasRelatives(h *jobstore.Handout) bool { return !h.GivenUp && (h.Parent != 0 || h.HasChildren) }

// addChildren adds the children of h that are over.
func addChildren(ctx context.Context, tx jobstore.Tx, h *jobstore.Handout) error {
	after := ID(0)
	for {
		found, err := tx.Children(ctx, h.ID, jobstore.Page{States: []State{Finished, Cancelled}, After: after, Limit: page})
		if err != nil || len(found) == 0 {
			return err
		}
		after = found[len(found)-1].ID
		for i := range found {
			c := Child{ID: found[i].ID, Data: found[i].Data}
			if found[i].State == Finished {
				h.FinishedChildren = append(h.FinishedChildren, c)
			} else {
				h.CancelledChildren = append(h.CancelledChildren, c)
			}
		}
	}
}

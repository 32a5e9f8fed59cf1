package jobs

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/swarmiji/swarmiji/capability"
	pages "github.com/swarmiji/swarmiji/jobs/internal/page"
	"github.com/swarmiji/swarmiji/jobs/internal/rules"
	"github.com/swarmiji/swarmiji/jobs/internal/txn"
	"github.com/swarmiji/swarmiji/jobs/jobstore"
)

// Request selects due jobs for Get.
type Request struct {
	// Selector selects the jobs. Its Pattern has at most [MaxName] bytes.
	Selector
	// Lease is the time after which a claimed job is due again unless Renew is called. It does not
	// apply to a job with RetryAfter. It is rounded up to microseconds. 0: no limit.
	Lease time.Duration
	// Max limits the number of returned jobs. Default: 1. At most [MaxTake].
	Max int
	// Wait makes Get wait until a job is due or ctx ends.
	Wait bool
}

// MaxTake is the largest number of jobs that one Get returns.
const MaxTake = 1000

// MaxChildrenData limits the total bytes of data of ended children in the claim of their parent.
// Further children are included without their data.
const MaxChildrenData = 16 << 20

const (
	// childBytes is the wanted size of a page of children, in bytes. firstChildren is the number of
	// children in the first page.
	childBytes, firstChildren = 4 << 20, 16
)

// maxRetries is the number of claims of a job with RetryAfter in one run.
const maxRetries = 10

// manual is the prefix of the names of jobs that RetryAfter claims again without limit.
const manual = "manual"

// Get claims due jobs and returns them, in the order of Priority, then of due time. Each job goes
// to one caller. A claimed job is RUNNING, or RUNQUEUED if it has RetryAfter. With Wait, Get blocks
// until a job is due. Jobs of queues are never claimed.
//
// Special claims:
//
//   - A job that RetryAfter has claimed ten times is returned as FAILED, with GivenUp set.
//   - A job whose lease has ended is claimed again and continues its attempt.
//   - Phase Awaiting means that no answer came in time, Answered that the job has its answer.
//
// Waiting callers with equal requests receive jobs in the order of their calls. If the ctx of a
// caller ends during its claim, the job goes to the next caller or is given back.
//
// Returns at least one job or an error: [ErrNoJob] if no job is due, or with Wait if ctx ends
// first. Returns [ErrClosed] after Close and a [FieldError] for an invalid request. After
// [ErrUnavailable] some jobs may stay RUNNING until their lease or RetryAfter ends. Claims count as
// [Stats].Taken, GivenUp and TimedOut.
func (s *Service) Get(ctx context.Context, r Request) ([]Handout, error) {
	if err := r.check(); err != nil {
		return nil, err
	}
	return s.wait.Get(ctx, r.Selector, r.Lease, r.Max, r.Wait)
}

// check sets Max to 1 if it is 0 and rounds Lease up to microseconds. Returns a FieldError for an
// invalid field, also if both Pattern and Names are set or neither is.
func (r *Request) check() error {
	switch {
	case r.Pattern == "" && len(r.Names) == 0:
		return &FieldError{Field: "name", Problem: rules.Missing}
	case r.Pattern != "" && len(r.Names) > 0:
		return &FieldError{Field: "name", Problem: "both a pattern and names"}
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

// claimDue claims up to limit due jobs without a queue that sel selects, and returns them. It
// counts them as Taken, GivenUp and TimedOut. If no job is due it returns no jobs and a nil error.
// It can return an error together with jobs that it has claimed.
func (s *Service) claimDue(ctx context.Context, sel Selector, lease time.Duration, limit int) ([]Handout, error) {
	out, rest, err := s.claimSimple(ctx, sel, lease, limit)
	if rest && len(out) < limit { // the next job is not simple
		var more []Handout
		more, err = s.claimByRules(ctx, sel, lease, limit-len(out))
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

// claimSimple claims up to limit simple jobs in one statement (jobstore.Taker): jobs without
// RetryAfter, parent and children. It stops at the first due job that is not simple.
//
// rest reports that such a job is due, or that the store is not a Taker; then use claimByRules. If
// the answer of a claimed job has come, it stores the Phase Answered in a second transaction. If
// that fails, it returns the error together with the claimed jobs. It remembers that the store is
// not a Taker. Returns errors of the store; jobs may then stay claimed until their leases end.
func (s *Service) claimSimple(ctx context.Context, sel Selector, lease time.Duration, limit int) (out []Handout, rest bool, err error) {
	if s.noTaker.Load() {
		return nil, true, nil
	}
	var found []Row
	var asked time.Time
	err = s.c.Store.Single(ctx, func(ctx context.Context, tx jobstore.Tx) error {
		found, rest, asked = nil, true, time.Now()
		t, ok := capability.As[jobstore.Taker](tx)
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
		// it may have been RUNNING, with an expired lease
		if lease > 0 && found[i].Token != found[i].Run {
			out[i].Before.State = Running
		}
	}
	for i := range out {
		// its worker died before it handled the answer
		if j := &out[i].Row; j.Phase == "" && rules.IsAnswered(j) {
			if err := s.markAnswered(ctx, j); err != nil {
				return out, false, err
			}
		}
	}
	return out, rest, nil
}

// markAnswered sets the Phase of a claimed job to Answered, clears its Deadline, and copies the
// stored job to *j. It has a transaction of its own. It changes nothing, without an error, if the
// job was deleted, was claimed again or has no answer. Returns other errors of the store.
func (s *Service) markAnswered(ctx context.Context, j *Row) error {
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

// claimByRules claims up to limit due jobs of any kind, except jobs of queues, in one transaction.
// It returns them with the data of their parents and ended children.
//
// A job that RetryAfter has claimed too often becomes FAILED. It is returned with GivenUp, and its
// sequence and parent may proceed. If the relatives cannot be read after the commit, giveBackOrLog
// gives all claimed jobs back, and the error is returned. Returns errors of the store.
func (s *Service) claimByRules(ctx context.Context, sel Selector, lease time.Duration, limit int) ([]Handout, error) {
	var l txn.Locks
	var out []Handout
	err := s.txn.Do(ctx, &l, func(ctx context.Context, t *txn.Step) error {
		found, err := t.Tx.Due(ctx, Due{Selector: sel}, limit)
		if err != nil {
			return err
		}
		t.Hold(found)
		out = make([]Handout, len(found))
		save := make([]*Row, len(found))
		for i := range found {
			j := &found[i]
			out[i] = Handout{Before: Before{State: j.State, NextRun: j.NextRun}, Asked: t.Asked}
			if out[i].GivenUp, err = s.claim(ctx, t, j, lease); err != nil {
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
				if err := s.updateRelated(ctx, t, &found[i]); err != nil {
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
			s.giveBackOrLog(out[i])
		}
		return nil, err
	}
	return out, nil
}

// claim changes j, which is due, into a claimed job, without saving it. It increases Token and sets
// State, LastRun and the lease. A job with RetryAfter becomes RUNQUEUED with its next claim time;
// any other job becomes RUNNING.
//
//   - A QUEUED job begins a new run: Run rises by one.
//   - A job that was not RUNNING begins a new attempt. After the end of a lease the attempt
//     continues.
//   - A job with an answer or a timeout to handle keeps run and attempt, and gets its Phase.
//   - A job that RetryAfter has claimed ten times in this run becomes FAILED; givenUp is then true.
//
// Returns ErrLocks, for another try, if a job to fail has a sequence or a parent that is not
// locked. Returns the errors of fail and of setNextClaim.
func (s *Service) claim(ctx context.Context, t *txn.Step, j *Row, lease time.Duration) (givenUp bool, err error) {
	if rules.IsAnswered(j) { // its worker died before it handled the answer
		j.Phase, j.Deadline = Answered, time.Time{}
	}
	if j.Phase != "" { // a worker must handle its answer or its timeout
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
		err := s.fail(ctx, t, j, fmt.Sprintf("it was claimed %d times by RetryAfter and did not end", maxRetries))
		rules.SetDue(j, time.Time{})
		return true, err
	}
	if wasQueued {
		j.Run++
		j.Scheduled = j.NextRun
	}
	if j.State != Running { // after the end of a lease the attempt continues
		j.Attempt++
	}
	j.Token++
	j.LastRun = t.Now
	if j.RetryAfter != "" {
		j.State = RunQueued
		rules.SetDue(j, time.Time{})
		return false, s.setNextClaim(t, j, k)
	}
	j.State = Running
	rules.SetLease(j, t.Now, lease)
	return false, nil
}

// setNextClaim sets NextRun and Due of a claimed job with RetryAfter to the time of its next claim:
// now plus RetryAfter, or its next repeat if that is earlier and in the future, at most in the year
// 9999. Handouts, the number of claims in this run, becomes k. For a name that begins with "manual"
// it stays, so such a job is claimed without limit. Returns an error if RetryAfter or Repeat cannot
// be parsed.
func (s *Service) setNextClaim(t *txn.Step, j *Row, k int32) error {
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
		// A NextRun in the past, while missed runs are made up for, would run the job twice at a time.
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

// addRelatives sets ParentData, FinishedChildren and CancelledChildren of claimed jobs. A deleted
// parent leaves ParentData nil. Jobs with GivenUp get nothing. It reads after the claim and
// without locks, since locking a parent after its child would break the lock order. It does no I/O
// if no job has relatives. Returns errors of the store.
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

// hasRelatives reports whether the claim h must include a parent or children. A claim with GivenUp
// includes neither.
func hasRelatives(h *jobstore.Handout) bool { return !h.GivenUp && (h.Parent != 0 || h.HasChildren) }

// addChildren adds all FINISHED and CANCELLED children to the lists of h, in the order of ids. The
// first child whose Data would exceed MaxChildrenData bytes in total gets nil Data, and so do all
// later children. It reads them page by page. Returns errors of the store; h may then have a part
// of the children.
func addChildren(ctx context.Context, tx jobstore.Tx, h *jobstore.Handout) error {
	left := MaxChildrenData
	after := ID(0)
	size := pages.Size{Bytes: childBytes, First: firstChildren, Most: page}
	for {
		found, err := tx.Children(ctx, h.ID, jobstore.Page{States: []State{Finished, Cancelled}, After: after, Limit: size.Limit()})
		if err != nil || len(found) == 0 {
			return err
		}
		size.Read(len(found), pages.Rows(found))
		after = found[len(found)-1].ID
		for i := range found {
			c := Child{ID: found[i].ID}
			if left -= len(found[i].Data); left >= 0 {
				c.Data = found[i].Data
			}
			if found[i].State == Finished {
				h.FinishedChildren = append(h.FinishedChildren, c)
			} else {
				h.CancelledChildren = append(h.CancelledChildren, c)
			}
		}
	}
}

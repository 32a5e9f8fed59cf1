package deferrals

import (
	"context"
	"fmt"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/deferral"
	"github.com/swarmiji/swarmiji/jobs/jobstore"
	"github.com/swarmiji/swarmiji/task"
)

// claim is a deferral that this process has claimed.
type claim struct {
	attempt deferral.Attempt
	outcome deferral.Outcome
	fence   int64
}

// maxWait limits the time for which due looks ahead. Subscriptions poll more often.
const maxWait = time.Minute

// claimDue claims up to limit due deferrals of the queues, each for the time lease. It skips
// deferrals that another transaction has locked. If none is due, it only reads, and wait is the
// time until the next one becomes due.
func (s *Store) claimDue(ctx context.Context, queues []string, limit int, lease time.Duration) (claims []claim, wait time.Duration, err error) {
	due, wait, err := s.due(ctx, queues)
	if err != nil || len(due) == 0 {
		return nil, wait, err
	}
	err = s.store.Update(ctx, func(ctx context.Context, tx jobstore.Tx) error {
		claims = nil
		now, err := tx.Now(ctx)
		if err != nil {
			return err
		}
		for _, queue := range due {
			free := limit - len(claims)
			if free == 0 {
				break
			}
			found, err := tx.DueDeferrals(ctx, queue, now, free)
			if err != nil {
				return err
			}
			saved := make([]*jobstore.Deferral, len(found))
			for i := range found {
				saved[i] = &found[i]
				if c, ok := claimDeferral(saved[i], now, lease); ok {
					claims = append(claims, c)
				}
			}
			if err := tx.SaveDeferrals(ctx, saved...); err != nil {
				return err
			}
		}
		return nil
	})
	return claims, 0, wrap(err)
}

// due returns those of the queues that have a due deferral. If no queue has one, wait is the time
// until the first deferral becomes due, at most maxWait.
func (s *Store) due(ctx context.Context, queues []string) (due []string, wait time.Duration, err error) {
	err = s.store.View(ctx, func(ctx context.Context, tx jobstore.Tx) error {
		due, wait = nil, 0
		now, err := tx.Now(ctx)
		if err != nil {
			return err
		}
		next := now.Add(maxWait)
		for _, queue := range queues {
			found, err := tx.DueDeferrals(ctx, queue, next, 1)
			if err != nil {
				return err
			}
			switch {
			case len(found) == 0:
			case !found[0].Due.After(now):
				due = append(due, queue)
			case found[0].Due.Before(next):
				next = found[0].Due
			}
		}
		if len(due) == 0 {
			wait = next.Sub(now)
		}
		return nil
	})
	return due, wait, wrap(err)
}

// claimDeferral changes d, which is due, to a claimed deferral and returns the claim. ok is false
// if d has an answer for an attempt that may be repeated; d is then postponed for that attempt. The
// caller saves d.
func claimDeferral(d *jobstore.Deferral, now time.Time, lease time.Duration) (claim, bool) {
	d.Fence++
	if d.Phase == jobstore.DeferralReserved && d.Answered() {
		if !d.AtMostOnce {
			postpone(d, now)
			return claim{}, false
		}
		d.Phase = jobstore.DeferralDecided // no other consumer ends the task
	}
	o := deferral.Outcome{Deadline: d.Deadline, Again: d.Claimed}
	if d.Phase == jobstore.DeferralAwaiting && !d.Deadline.After(now) {
		d.Phase, d.Verdict = jobstore.DeferralDecided, jobstore.VerdictTimeout
	}
	switch {
	case d.Phase == jobstore.DeferralReserved:
		o.Kind = deferral.Abandoned
	case d.Phase == jobstore.DeferralAwaiting:
		o.Kind = deferral.Woken
	case d.Verdict == jobstore.VerdictAnswer:
		o.Kind, o.Answer = deferral.Answered, d.Answer
	case d.Verdict == jobstore.VerdictRefusal:
		o.Kind, o.Refusal = deferral.Refused, d.Refusal
	default:
		o.Kind = deferral.TimedOut
	}
	d.Claimed = d.Claimed || o.Kind != deferral.Woken
	d.Due = wholeMicros(now.Add(lease))
	a := deferral.Attempt{Queue: d.Queue, Name: d.Name, Task: d.Task, Generation: d.Generation, AtMostOnce: d.AtMostOnce, State: d.State}
	return claim{attempt: a, outcome: o, fence: d.Fence}, true
}

// postpone makes d, which has its answer, wait one more day for the attempt that uses the answer.
func postpone(d *jobstore.Deferral, now time.Time) {
	d.Claimed = false
	d.Deadline = wholeMicros(now.Add(task.DefaultAnswerWithin))
	d.Due = d.Deadline
}

// updateClaimed calls fn with a claimed deferral and saves it, in a transaction. It does nothing if
// the deferral is over. Returns [broker.ErrLeaseLost] if another consumer has claimed it.
func (s *Store) updateClaimed(ctx context.Context, c *claim, fn func(d *jobstore.Deferral, now time.Time)) error {
	return wrap(s.store.Update(ctx, func(ctx context.Context, tx jobstore.Tx) error {
		found, err := tx.Deferrals(ctx, c.attempt.Task)
		if err != nil {
			return err
		}
		if len(found) == 0 || found[0].Fence != c.fence {
			return fmt.Errorf("%w: the deferral of task %s", broker.ErrLeaseLost, c.attempt.Task)
		}
		now, err := tx.Now(ctx)
		if err != nil || !found[0].Open() {
			return err
		}
		fn(&found[0], now)
		return tx.SaveDeferrals(ctx, &found[0])
	}))
}

// end settles a claimed deferral: it becomes over, and its record stays for Config.Retention. An
// abandoned attempt whose answer has come is postponed instead. Repeating the call is harmless.
// Returns [broker.ErrLeaseLost] as updateClaimed does.
func (s *Store) end(ctx context.Context, c *claim) error {
	return s.updateClaimed(ctx, c, func(d *jobstore.Deferral, now time.Time) {
		abandoned := c.outcome.Kind == deferral.Abandoned
		switch {
		case abandoned && d.Answered() && !d.AtMostOnce: // the answer came after the claim
			d.Fence++
			postpone(d, now)
			return
		case abandoned: // The attempt has not ended. A message of it may still exist, and may be handled.
			d.Generation--
		}
		if !d.Answered() {
			d.Verdict = jobstore.NoVerdict
		}
		d.Phase = jobstore.DeferralOver
		d.Due, d.Deadline, d.Expires = time.Time{}, time.Time{}, wholeMicros(now.Add(s.keep))
		d.Answer, d.Refusal, d.State = nil, "", nil
	})
}

// next passes a claimed deferral on to the next attempt of the task, whose message is due at the
// given time. An answer is stored for that attempt. Returns [broker.ErrLeaseLost] as updateClaimed
// does.
func (s *Store) next(ctx context.Context, c *claim, at time.Time) error {
	return s.updateClaimed(ctx, c, func(d *jobstore.Deferral, now time.Time) {
		if at.Before(now) {
			at = now
		}
		d.Generation++
		d.Fence++
		d.Phase, d.Verdict, d.Answer, d.Refusal = jobstore.DeferralReserved, jobstore.NoVerdict, nil, ""
		d.State, d.AtMostOnce, d.Claimed = nil, false, false
		d.Deadline = wholeMicros(at.Add(s.keep))
		d.Due = d.Deadline
	})
}

// release gives a claimed deferral back, so that it can be claimed again after the given time.
// Returns [broker.ErrLeaseLost] as updateClaimed does.
func (s *Store) release(ctx context.Context, c *claim, after time.Duration) error {
	return s.updateClaimed(ctx, c, func(d *jobstore.Deferral, now time.Time) {
		d.Fence++
		d.Due = wholeMicros(now.Add(after))
		if c.outcome.Kind == deferral.Woken && d.Deadline.Before(d.Due) {
			d.Due = d.Deadline
		}
	})
}

// renew sets the end of the leases of claims to lease from now, in one transaction. lost contains
// the claims that another consumer has taken.
func (s *Store) renew(ctx context.Context, claims []*claim, lease time.Duration) (lost []*claim, err error) {
	if len(claims) == 0 {
		return nil, nil
	}
	ids := make([]task.ID, len(claims))
	for i, c := range claims {
		ids[i] = c.attempt.Task
	}
	err = s.store.Update(ctx, func(ctx context.Context, tx jobstore.Tx) error {
		lost = nil
		found, err := tx.Deferrals(ctx, ids...)
		if err != nil {
			return err
		}
		now, err := tx.Now(ctx)
		if err != nil {
			return err
		}
		of := make(map[task.ID]*jobstore.Deferral, len(found))
		for i := range found {
			of[found[i].Task] = &found[i]
		}
		var saved []*jobstore.Deferral
		for _, c := range claims {
			d := of[c.attempt.Task]
			switch {
			case d == nil || d.Fence != c.fence:
				lost = append(lost, c)
			case d.Open():
				d.Due = wholeMicros(now.Add(lease))
				saved = append(saved, d)
			}
		}
		return tx.SaveDeferrals(ctx, saved...)
	})
	return lost, wrap(err)
}

// wakeAtOnce is the number of deferrals that one transaction changes, scanPage the number that one
// reads.
const (
	wakeAtOnce = 256
	scanPage   = 500
)

// Wake makes the deferrals of these tasks due now, if they await their answers. Other ids are
// ignored. It implements [deferral.Waker].
func (s *Store) Wake(ctx context.Context, ids ...task.ID) error {
	for len(ids) > 0 {
		n := min(len(ids), wakeAtOnce)
		err := s.store.Update(ctx, func(ctx context.Context, tx jobstore.Tx) error {
			found, err := tx.Deferrals(ctx, ids[:n]...)
			if err != nil {
				return err
			}
			now, err := tx.Now(ctx)
			if err != nil {
				return err
			}
			var saved []*jobstore.Deferral
			for i := range found {
				if d := &found[i]; d.Phase == jobstore.DeferralAwaiting && d.Due.After(now) {
					d.Due = now
					saved = append(saved, d)
				}
			}
			return tx.SaveDeferrals(ctx, saved...)
		})
		if err != nil {
			return wrap(err)
		}
		ids = ids[n:]
	}
	return nil
}

// Scan calls yield for the deferrals of a broker's queue that await their answers, in the order of
// task ids, until yield returns false. It implements [deferral.Waker].
func (s *Store) Scan(ctx context.Context, queue string, yield func(id task.ID, state []byte) bool) error {
	var after task.ID
	for {
		var found []jobstore.Deferral
		err := s.store.View(ctx, func(ctx context.Context, tx jobstore.Tx) (err error) {
			found, err = tx.AwaitingDeferrals(ctx, queue, after, scanPage)
			return err
		})
		if err != nil {
			return wrap(err)
		}
		for i := range found {
			if after = found[i].Task; !yield(after, found[i].State) {
				return nil
			}
		}
		if len(found) < scanPage {
			return nil
		}
	}
}

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

// claim is a deferral in the hands of this process.
type claim struct {
	attempt deferral.Attempt
	outcome deferral.Outcome
	fence   int64
}

// lookAhead is how far due looks ahead: subscriptions look more often.
const lookAhead = time.Minute

// claimDue claims what is due of the deferrals of queues, at most limit, each for a lease. What
// others are about to claim it passes over. It only reads as long as nothing is due; wait is then
// how long that is so, as far as is known.
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
			room := limit - len(claims)
			if room == 0 {
				break
			}
			found, err := tx.DueDeferrals(ctx, queue, now, room)
			if err != nil {
				return err
			}
			saved := make([]*jobstore.Deferral, len(found))
			for i := range found {
				saved[i] = &found[i]
				if c, ok := take(saved[i], now, lease); ok {
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

// due returns the queues of which something is due, and, if there are none, how long that is so.
func (s *Store) due(ctx context.Context, queues []string) (due []string, wait time.Duration, err error) {
	err = s.store.View(ctx, func(ctx context.Context, tx jobstore.Tx) error {
		due, wait = nil, 0
		now, err := tx.Now(ctx)
		if err != nil {
			return err
		}
		next := now.Add(lookAhead)
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

// take claims d, which is due, unless an attempt that may be repeated has its answer: then d waits
// for that.
func take(d *jobstore.Deferral, now time.Time, lease time.Duration) (claim, bool) {
	d.Fence++
	if d.Phase == jobstore.DeferralReserved && d.Answered() {
		if !d.AtMostOnce {
			postpone(d, now)
			return claim{}, false
		}
		d.Phase = jobstore.DeferralDecided // nobody else ends the task
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

// postpone has the answer of an attempt that may be repeated wait for that for another day.
func postpone(d *jobstore.Deferral, now time.Time) {
	d.Claimed = false
	d.Deadline = wholeMicros(now.Add(task.DefaultAnswerWithin))
	d.Due = d.Deadline
}

// held runs fn with a claimed deferral, and writes it unless it is over already. One that another
// consumer has by now is [broker.ErrLeaseLost].
func (s *Store) held(ctx context.Context, c *claim, fn func(d *jobstore.Deferral, now time.Time)) error {
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

// end ends a claimed deferral. To repeat it is harmless.
func (s *Store) end(ctx context.Context, c *claim) error {
	return s.held(ctx, c, func(d *jobstore.Deferral, now time.Time) {
		abandoned := c.outcome.Kind == deferral.Abandoned
		switch {
		case abandoned && d.Answered() && !d.AtMostOnce: // the answer has come since
			d.Fence++
			postpone(d, now)
			return
		case abandoned: // the attempt has not come to its end: a message of it may be there still, and has its turn
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

// next leaves a claimed deferral to the task's next attempt, whose message is not due before a
// time.
func (s *Store) next(ctx context.Context, c *claim, at time.Time) error {
	return s.held(ctx, c, func(d *jobstore.Deferral, now time.Time) {
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

// release gives a claimed deferral back.
func (s *Store) release(ctx context.Context, c *claim, after time.Duration) error {
	return s.held(ctx, c, func(d *jobstore.Deferral, now time.Time) {
		d.Fence++
		d.Due = wholeMicros(now.Add(after))
		if c.outcome.Kind == deferral.Woken && d.Deadline.Before(d.Due) {
			d.Due = d.Deadline
		}
	})
}

// renew renews the leases of claims, and returns those that another consumer has by now.
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

// wakeAtOnce is how many deferrals are changed, and scanPage how many are read, in one transaction.
const (
	wakeAtOnce = 256
	scanPage   = 500
)

// Wake implements [deferral.Waker].
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

// Scan implements [deferral.Waker].
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

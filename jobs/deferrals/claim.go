package deferrals

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/capability"
	"github.com/swarmiji/swarmiji/deferral"
	"github.com/swarmiji/swarmiji/jobs/jobstore"
	"github.com/swarmiji/swarmiji/task"
)

// claim is a deferral that this process has claimed. A deferral is the stored record of a task that
// waits for an answer. fence is the fencing token of the claim: after another claim it is stale.
type claim struct {
	attempt deferral.Attempt
	outcome deferral.Outcome
	fence   int64
}

// maxWait limits the time for which due looks ahead. Subscriptions poll more often.
const maxWait = time.Minute

// claimDue claims up to limit due deferrals of the queues, each for the time lease. It skips
// deferrals that another transaction has locked, so it may claim fewer or none although some are
// due.
//
// If no deferral is due, it only reads, and wait is the time until the next one becomes due, at
// most maxWait. Otherwise wait is 0. An abandoned attempt with an answer that may be repeated is
// postponed instead of claimed. Returns errors of the store, as wrap converts them.
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
// until the first deferral becomes due, at most maxWait; otherwise 0. It locks and changes
// nothing. Returns errors of the store, as wrap converts them.
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

// claimDeferral changes d, which is due, to a deferral that is claimed: its Due becomes the end of
// the lease, and its fencing token the next one. It returns the claim with that token.
// Outcome.Again tells whether d was claimed before. Outcome.Kind says why d is due:
//
//   - Phase DeferralReserved: Abandoned, since the attempt has not reported in time.
//   - Phase DeferralAwaiting: Woken, or TimedOut if the Deadline has passed. Phase then becomes
//     DeferralDecided.
//   - Phase DeferralDecided: Answered, Refused or TimedOut, by the Verdict.
//
// A deferral in Phase DeferralReserved may have an answer. If its attempt runs at most once, it
// becomes DeferralDecided, with the Kind of its Verdict. Otherwise the attempt may be repeated and
// use the answer: d is postponed for it, and false, the second result, means that there is no
// claim. The caller saves d in all cases.
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

// postpone makes d unclaimed and due after task.DefaultAnswerWithin (one day) from now. Until then
// another attempt can use the answer that d has. The caller saves d.
func postpone(d *jobstore.Deferral, now time.Time) {
	d.Claimed = false
	d.Deadline = wholeMicros(now.Add(task.DefaultAnswerWithin))
	d.Due = d.Deadline
}

// updateClaimed calls fn with a claimed deferral in a transaction, and saves the deferral. fn must
// only change the deferral, since it may run again. It waits for the store.
//
//   - Another consumer has claimed the deferral, or it does not exist: [broker.ErrLeaseLost].
//   - The deferral is over: nil. fn is not called.
//   - The store fails: its error, as wrap converts it.
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

// end stores that a claimed deferral is settled. The deferral becomes over; its record stays for
// Config.Retention without answer and state. Returns the errors of updateClaimed, such as
// [broker.ErrLeaseLost]. A repeated call changes nothing and returns nil.
//
// For an abandoned attempt the record does not count as the end of that attempt, whose message may
// still be handled. If its answer has come after the claim and the attempt may be repeated, the
// deferral is postponed instead. A repeated call then returns ErrLeaseLost.
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
// given time; a past time means now. The deferral then reserves the same key for that attempt: an
// answer that comes is stored for it. The old answer and state are deleted. The attempt must begin
// within Config.Retention. Returns the errors of updateClaimed, such as [broker.ErrLeaseLost]. A
// repeated call after a success returns ErrLeaseLost.
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

// release gives a claimed deferral back: it can be claimed again after the given time. A woken
// deferral, which still awaits its answer, is due at its Deadline at the latest. Returns the errors
// of updateClaimed, such as [broker.ErrLeaseLost]. A repeated call after a success returns
// ErrLeaseLost.
func (s *Store) release(ctx context.Context, c *claim, after time.Duration) error {
	return s.updateClaimed(ctx, c, func(d *jobstore.Deferral, now time.Time) {
		d.Fence++
		d.Due = wholeMicros(now.Add(after))
		if c.outcome.Kind == deferral.Woken && d.Deadline.Before(d.Due) {
			d.Due = d.Deadline
		}
	})
}

// renew sets the end of the leases of claims to lease from now, and waits for the store. It first
// renews the claims whose deferral no other transaction has locked, in one transaction. Then it
// renews the others, for which it waits at most a sixth of lease or 10 s. A claim whose lease has
// ended is renewed too, if no other consumer has claimed the deferral since. Without claims it does
// nothing.
//
// lost contains the claims whose deferral is deleted or has another fencing token. unknown contains
// claims that may be renewed or not. Claims whose deferral is over with their token are ignored.
// Returns errors of the store, as wrap converts them; the lists have no meaning then.
func (s *Store) renew(ctx context.Context, claims []*claim, lease time.Duration) (lost, unknown []*claim, err error) {
	if len(claims) == 0 {
		return nil, nil, nil
	}
	lost, missing, err := s.renewTogether(ctx, claims, lease, true)
	if err != nil || len(missing) == 0 {
		return lost, nil, err
	}
	// The others must be renewed again in time.
	short, cancel := context.WithTimeout(ctx, min(lease/6, 10*time.Second))
	defer cancel()
	more, deleted, err := s.renewTogether(short, missing, lease, false)
	if err != nil {
		return lost, missing, nil
	}
	return slices.Concat(lost, more, deleted), nil, nil
}

// renewTogether renews claims in one transaction. lost contains the claims whose deferral has
// another fencing token, missing those whose deferral does not exist. With free it does not wait
// for deferrals that another transaction has locked: their claims are also in missing. Returns
// errors of the store, as wrap converts them.
func (s *Store) renewTogether(ctx context.Context, claims []*claim, lease time.Duration, free bool) (lost, missing []*claim, err error) {
	ids := make([]task.ID, len(claims))
	for i, c := range claims {
		ids[i] = c.attempt.Task
	}
	err = s.store.Update(ctx, func(ctx context.Context, tx jobstore.Tx) error {
		lost, missing = nil, nil
		read := tx.Deferrals
		if l, ok := capability.As[jobstore.HastyLocker](tx); ok && free {
			read = l.FreeDeferrals
		}
		found, err := read(ctx, ids...)
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
			case d == nil:
				missing = append(missing, c)
			case d.Fence != c.fence:
				lost = append(lost, c)
			case d.Open():
				d.Due = wholeMicros(now.Add(lease))
				saved = append(saved, d)
			}
		}
		return tx.SaveDeferrals(ctx, saved...)
	})
	return lost, missing, wrap(err)
}

// wakeAtOnce is the number of deferrals that one transaction changes, scanPage the number that one
// reads.
const (
	wakeAtOnce = 256
	scanPage   = 500
)

// Wake makes the deferrals of these tasks due now, if they await their answers. Other ids are
// ignored. It changes at most wakeAtOnce deferrals per transaction; after an error the earlier ones
// stay changed. Returns errors of the store, such as [deferral.ErrUnavailable]. It implements
// [deferral.Waker].
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
// task ids, until yield returns false. It reads them page by page and locks nothing; no transaction
// is open during yield. Returns nil when yield returns false, and errors of the store, such as
// [deferral.ErrUnavailable]. It implements [deferral.Waker].
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

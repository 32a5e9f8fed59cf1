package jobs

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/swarmiji/swarmiji/task"
)

// DeferralKind says why a deferral was claimed.
type DeferralKind int

// The kinds.
const (
	DeferralAnswered DeferralKind = iota // there is an answer
	DeferralRefused                      // there is a refusal
	DeferralTimedOut                     // no answer came in time
	DeferralRoused                       // [Deferrals.Rouse] asked for a look at it: it is given back, or ended
	DeferralLost                         // its attempt has expected an answer, and has neither deferred nor dropped it: it is ended, or given back
)

// ClaimedDeferral is a deferral in the hands of a consumer. It is the consumer's until it is ended or given back, and as long as its lease is renewed.
type ClaimedDeferral struct {
	ID    ID
	Token int64 // the fence
	Queue string
	Name  string
	Kind  DeferralKind
	Data  []byte
	// Answer is the answer, any JSON value.
	Answer []byte
	// Refusal is why it was refused.
	Refusal string
	// Deadline is until when the answer is awaited.
	Deadline time.Time
	// Again: it was claimed before, so that some of what follows may be done.
	Again bool
}

// DeferralClaims is what [Deferrals.Claim] answers.
type DeferralClaims struct {
	Claimed []ClaimedDeferral
	// Wait is how long nothing else becomes due, as far as is known. 0: something is, or may be.
	Wait time.Duration
}

// longAhead is how far due looks ahead: who claims looks more often.
const longAhead = 24 * time.Hour

// Claim hands out what is due of the deferrals of these queues of the broker, at most max of them, each under a lease. What others are about to claim it passes over. It only reads as
// long as nothing is due; Wait is then max at most.
func (f *Deferrals) Claim(ctx context.Context, queues []string, max int, lease time.Duration) (DeferralClaims, error) {
	due, wait, err := f.due(ctx, queues)
	if err != nil || len(due) == 0 || max <= 0 {
		return DeferralClaims{Wait: wait}, err
	}
	var out DeferralClaims
	err = f.s.c.Store.Update(ctx, func(ctx context.Context, tx Tx) error {
		out = DeferralClaims{}
		now, err := tx.Now(ctx)
		if err != nil {
			return err
		}
		for _, queue := range due {
			room := max - len(out.Claimed)
			if room == 0 {
				break
			}
			found, err := tx.Find(ctx, Query{Line: &Line{Queue: deferredQueue + queue, State: Running, By: now}, Limit: room})
			if err != nil {
				return err
			}
			saved := make([]*Job, 0, len(found))
			for i := range found {
				j := &found[i]
				out.Claimed = append(out.Claimed, j.claim(queue, now, lease))
				saved = append(saved, j)
			}
			if len(saved) == 0 {
				continue
			}
			if err := tx.Save(ctx, saved...); err != nil {
				return err
			}
		}
		return nil
	})
	return out, err
}

// due returns the queues of which something is due, and, if there are none, how long that will be so.
func (f *Deferrals) due(ctx context.Context, queues []string) (due []string, wait time.Duration, err error) {
	err = f.s.c.Store.View(ctx, func(ctx context.Context, tx Tx) error {
		due, wait = nil, 0
		now, err := tx.Now(ctx)
		if err != nil {
			return err
		}
		next := now.Add(longAhead)
		for _, queue := range queues {
			found, err := tx.Find(ctx, Query{Line: &Line{Queue: deferredQueue + queue, State: Running, By: next}, Limit: 1})
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
	return due, wait, err
}

// claim hands out j, which is due.
func (j *Job) claim(queue string, now time.Time, lease time.Duration) ClaimedDeferral {
	c := ClaimedDeferral{Queue: queue, Name: j.Name, Data: j.Data, Deadline: j.Deadline, Again: !j.Scheduled.IsZero()}
	switch {
	case j.Phase == "":
		c.Kind = DeferralLost
	case j.Phase == Awaiting && j.Deadline.After(now):
		c.Kind = DeferralRoused
	default:
		if j.Phase == Awaiting {
			j.Respond = false // it has timed out, whatever its Reason
		}
		j.Phase = Answered // for a timeout too: no answer comes in any more
		switch {
		case !j.Respond:
			c.Kind = DeferralTimedOut
		case j.Answer != nil:
			c.Kind, c.Answer = DeferralAnswered, j.Answer
		default:
			c.Kind, c.Refusal = DeferralRefused, j.Reason
		}
	}
	if c.Kind != DeferralRoused {
		j.Scheduled = now
	}
	j.Token++
	j.Due, j.Changed = micros(now.Add(lease)), now
	c.ID, c.Token = j.ID, j.Token
	return c
}

// held runs fn with a claimed deferral. One that somebody else has by now is [ErrStale].
func (f *Deferrals) held(ctx context.Context, c *ClaimedDeferral, fn func(ctx context.Context, tx Tx, j *Job, now time.Time) error) error {
	err := f.s.c.Store.Update(ctx, func(ctx context.Context, tx Tx) error {
		j, err := tx.Get(ctx, c.ID)
		if errors.Is(err, ErrNotFound) {
			return fmt.Errorf("%w: deferral %d is gone", ErrStale, c.ID)
		}
		if err != nil {
			return err
		}
		if j.Token != c.Token {
			return fmt.Errorf("%w: deferral %d, token %d, not %d", ErrStale, c.ID, j.Token, c.Token)
		}
		now, err := tx.Now(ctx)
		if err != nil {
			return err
		}
		return fn(ctx, tx, &j, now)
	})
	return f.s.counted(&f.s.count.finished, err)
}

// End says that a claimed deferral is over: its task has ended. It is kept for Config.Keep, without its data, so that what still comes for its key is told from what
// nobody knows. Said again it is nil. The attempt of a [DeferralLost] is not over with it: it may expect another answer, or be deferred, whenever its message comes.
func (f *Deferrals) End(ctx context.Context, c *ClaimedDeferral) error {
	return f.held(ctx, c, func(ctx context.Context, tx Tx, j *Job, now time.Time) error {
		if j.State.Over() {
			return nil
		}
		j.State, j.Changed = Finished, now
		switch c.Kind {
		case DeferralAnswered:
		case DeferralRefused:
			j.State = Failed
		case DeferralLost: // the attempt has not come to its end: a message of it may be there still, and has its turn
			j.State, j.Run = Failed, j.Run-1
		default:
			j.State, j.Phase = Failed, ""
		}
		j.Due, j.Deadline, j.Expires = time.Time{}, time.Time{}, micros(now.Add(f.s.c.Keep))
		j.Answer, j.Data = nil, []byte("{}")
		return tx.Save(ctx, j)
	})
}

// Next says that the task of a claimed deferral will be attempted again, by a message that is there already and not due before a time; zero: now. An answer that comes until then is for that
// attempt, if it expects the same key.
func (f *Deferrals) Next(ctx context.Context, c *ClaimedDeferral, at time.Time) error {
	return f.held(ctx, c, func(ctx context.Context, tx Tx, j *Job, now time.Time) error {
		if j.State.Over() {
			return nil
		}
		if at.Before(now) {
			at = now
		}
		j.Run, j.Token = j.Run+1, j.Token+1
		j.Attempts, j.Phase, j.Answer, j.Reason, j.Data, j.Scheduled = j.Run, "", nil, "", []byte("{}"), time.Time{}
		j.Respond = true // which a timeout has taken from it
		j.Deadline = micros(at.Add(f.s.c.Keep))
		j.Due, j.Changed = j.Deadline, now
		return tx.Save(ctx, j)
	})
}

// Back gives a claimed deferral back, to be claimed again after a time; one that was only roused at its Deadline at the latest.
func (f *Deferrals) Back(ctx context.Context, c *ClaimedDeferral, after time.Duration) error {
	return f.held(ctx, c, func(ctx context.Context, tx Tx, j *Job, now time.Time) error {
		if j.State.Over() {
			return nil
		}
		j.Token++
		j.Due, j.Changed = micros(now.Add(after)), now
		if c.Kind == DeferralRoused && j.Deadline.Before(j.Due) {
			j.Due = j.Deadline
		}
		return tx.Save(ctx, j)
	})
}

// Renew renews the leases of claimed deferrals, and returns the ids of those that somebody else has by now.
func (f *Deferrals) Renew(ctx context.Context, cs []*ClaimedDeferral, lease time.Duration) (lost []ID, err error) {
	if len(cs) == 0 {
		return nil, nil
	}
	ids := make([]ID, len(cs))
	for i, c := range cs {
		ids[i] = c.ID
	}
	err = f.s.c.Store.Update(ctx, func(ctx context.Context, tx Tx) error {
		lost = nil
		now, err := tx.Now(ctx)
		if err != nil {
			return err
		}
		found, err := tx.Find(ctx, Query{IDs: ids})
		if err != nil {
			return err
		}
		at := make(map[ID]*Job, len(found))
		for i := range found {
			at[found[i].ID] = &found[i]
		}
		var saved []*Job
		for _, c := range cs {
			j := at[c.ID]
			if j == nil || j.Token != c.Token {
				lost = append(lost, c.ID)
				continue
			}
			if j.State == Running {
				j.Due, j.Changed = micros(now.Add(lease)), now
				saved = append(saved, j)
			}
		}
		if len(saved) == 0 {
			return nil
		}
		return tx.Save(ctx, saved...)
	})
	return lost, err
}

// Watch calls wake, from any goroutine, when there may be something to claim of one of these queues. It is a hint, as that of the store. stop ends it.
func (f *Deferrals) Watch(queues []string, wake func()) (stop func()) {
	words := make(map[string]bool, len(queues))
	for _, queue := range queues {
		words[QueueWord(deferredQueue+queue)] = true
	}
	return f.s.c.Store.Watch(func(names []string) {
		if names == nil {
			wake()
			return
		}
		for _, name := range names {
			if words[name] {
				wake()
				return
			}
		}
	})
}

// Rouse has the deferrals of these jobs be claimed at once, if they await their answers.
func (f *Deferrals) Rouse(ctx context.Context, ids []ID) error {
	if len(ids) == 0 {
		return nil
	}
	return f.s.c.Store.Update(ctx, func(ctx context.Context, tx Tx) error {
		now, err := tx.Now(ctx)
		if err != nil {
			return err
		}
		found, err := tx.Find(ctx, Query{IDs: ids, States: []State{Running}})
		if err != nil {
			return err
		}
		var saved []*Job
		for i := range found {
			j := &found[i]
			if j.Phase == Awaiting && strings.HasPrefix(j.Queue, deferredQueue) && j.Due.After(now) {
				j.Due, j.Changed = now, now
				saved = append(saved, j)
			}
		}
		if len(saved) == 0 {
			return nil
		}
		return tx.Save(ctx, saved...)
	})
}

// Find returns the ids of the jobs that are the deferrals of tasks. names are the names that they may have.
func (f *Deferrals) Find(ctx context.Context, names []string, tasks []task.ID) (ids []ID, err error) {
	err = f.s.c.Store.View(ctx, func(ctx context.Context, tx Tx) error {
		ids = nil
		for _, name := range names {
			for _, id := range tasks {
				found, err := tx.Find(ctx, Query{Name: name, UniqueKey: deferralKey(id), States: []State{Running}})
				if err != nil {
					return err
				}
				for j := range found {
					ids = append(ids, found[j].ID)
				}
			}
		}
		return nil
	})
	return ids, err
}

// List calls yield with the deferrals of a queue of the broker that await their answers, until it answers false. It may leave out, or repeat, one that is changed meanwhile.
func (f *Deferrals) List(ctx context.Context, queue string, yield func(id ID, name string, data []byte) bool) error {
	line := &Line{Queue: deferredQueue + queue, State: Running, By: time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)}
	q := Query{Line: line, Limit: page}
	for {
		var found []Job
		err := f.s.c.Store.View(ctx, func(ctx context.Context, tx Tx) (err error) {
			found, err = tx.Find(ctx, q)
			return err
		})
		if err != nil {
			return err
		}
		for i := range found {
			if j := &found[i]; j.Phase == Awaiting && !yield(j.ID, j.Name, j.Data) {
				return nil
			}
		}
		if len(found) < page {
			return nil
		}
		line.After = &found[len(found)-1]
	}
}

package deadletter

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/utf"
	"github.com/swarmiji/swarmiji/internal/wire"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/task"
)

// MaxProblems is how many letters a [Report] names; further ones are only counted.
const MaxProblems = 1000

// Report says what became of the letters that a filter took.
type Report struct {
	// Done is how many were requeued. Several letters of one message are counted each, until an
	// attempt of the new life starts.
	Done int
	// Already is how many had been requeued before, and whose new life has begun: from another
	// letter of the same message, or by a call that returned an error. They are removed.
	Already int
	// Refused is how many must not be requeued. They stay.
	Refused int
	// Unfenced is how many of Done have no record that fences: their store only carries replies, or
	// none is configured, or they cannot be read. What an attempt of their old life still writes is
	// not refused.
	Unfenced int
	// Problems says why letters were refused, for up to [MaxProblems] of them.
	Problems []Problem
}

// Problem is why a letter was refused.
type Problem struct {
	ID     task.ID
	Reason string
}

func (r *Report) refuse(id task.ID, reason string) {
	if r.Refused++; len(r.Problems) < MaxProblems {
		r.Problems = append(r.Problems, Problem{id, reason})
	}
}

// Requeue gives the letters of a queue that f takes a new life: each goes back into its queue, as a
// message of the next generation that does not expire.
//
// Three steps follow each other for each letter, and repeating all of them is safe: the task's
// record is reopened, the message published, the letter removed. After a crash, or an error,
// Requeue is called again.
//
// These are refused, and their letters stay:
//   - the member of a group that has counted the member's end: a new run would change nothing;
//   - a task with conditions ([task.Conditions]): its job is over, submit it again;
//   - a task that has succeeded, that was revoked, or of which a newer attempt exists;
//   - a task whose store is not among those configured, and a message that the broker does not
//     take.
//
// Refused letters do not count for f.Limit. A message that cannot be read is requeued as it is. The report is filled also beside an error,
// which is the broker's or the store's, and ends the work at the letter that met it.
func (l *Letters) Requeue(ctx context.Context, queue string, f Filter) (Report, error) {
	var r Report
	limit := f.Limit
	f.Limit = min(limit, 0) // refused letters, which would be the first ones each time, do not count
	err := l.scan(ctx, queue, f, func(letter *Letter) (broker.DeadAction, error) {
		if limit > 0 && r.Done+r.Already >= limit {
			return broker.DeadStop, nil
		}
		ctx, cancel := perLetter(ctx)
		defer cancel()
		return l.requeue(ctx, queue, letter, &r)
	})
	return r, err
}

// refusal is why a letter stays.
type refusal string

func (r refusal) Error() string { return string(r) }

var errAlready = errors.New("deadletter: requeued already")

func (l *Letters) requeue(ctx context.Context, queue string, letter *Letter, r *Report) (broker.DeadAction, error) {
	next := wire.NewLife(letter.Message, rand.Text())
	fenced, err := false, l.allowed(ctx, letter)
	if err == nil {
		fenced, err = l.reopen(ctx, letter, next, nil)
	}
	var why refusal
	if err == nil {
		if err = l.publish(ctx, home(queue), next); errors.As(err, &why) && fenced { // say so to those who wait for the new life
			if _, told := l.reopen(ctx, letter, next, task.Remote(why)); told != nil {
				err = told
			}
		}
	}
	switch {
	case err == nil:
		if r.Done++; !fenced {
			r.Unfenced++
		}
		return broker.DeadRemove, nil
	case errors.Is(err, errAlready):
		r.Already++
		return broker.DeadRemove, nil
	case errors.As(err, &why):
		r.refuse(letter.ID, string(why))
		return broker.DeadKeep, nil
	}
	return broker.DeadKeep, fmt.Errorf("deadletter: requeue %s: %w", letter.ID, err)
}

func (l *Letters) publish(ctx context.Context, queue string, m *broker.Message) error {
	err := l.cfg.Broker.Publish(ctx, queue, m)
	if errors.Is(err, broker.ErrTooLarge) || errors.Is(err, broker.ErrMalformed) || errors.Is(err, broker.ErrUnsupported) {
		return refusal(err.Error())
	}
	return err
}

// allowed returns a refusal for a task that a requeue could not run again with effect.
func (l *Letters) allowed(ctx context.Context, letter *Letter) error {
	e := letter.Task
	switch {
	case e == nil:
		return nil
	case len(e.Headers) > 0 && e.Headers[task.HeaderConditions] == string(e.ID):
		return refusal("a task with conditions is sent by its job, which is over; submit it again")
	case e.Group == "":
		return nil
	case l.gather == nil:
		return refusal("it is a member of group " + string(e.Group) + ", and nothing is configured that can tell whether its end was counted")
	case time.Since(letter.At) > resultstore.DefaultGatherTTL:
		return forgotten(e.Group)
	}
	ends, err := l.gather.Members(ctx, e.Group, e.GroupIndex, 1)
	if err == nil && len(ends) > 0 {
		return refusal("group " + string(e.Group) + " has counted its end; submit the workflow again")
	}
	if err != nil || e.SentAt.IsZero() || time.Since(e.SentAt) <= resultstore.DefaultGatherTTL {
		return err
	}
	ends, err = l.gather.Members(ctx, e.Group, 0, 1) // an imported letter is younger than its group
	if err == nil && len(ends) == 0 {
		return forgotten(e.Group)
	}
	return err
}

// forgotten is why the member of an old group is refused.
func forgotten(group task.ID) refusal {
	return refusal("it is a member of group " + string(group) + ", which may be forgotten; submit the workflow again")
}

// reopen begins the new life in the store, and reports whether that fences the old one. The steps that were skipped because the
// task failed are reopened too, as far as the message shows them; of a sealed one the consumer does it.
// why is the error of the new record: what keeps the new life from beginning, nil for nothing.
func (l *Letters) reopen(ctx context.Context, letter *Letter, next *broker.Message, why *task.RemoteError) (fenced bool, err error) {
	e := letter.Task
	if e == nil || e.ID.Check() != nil {
		return false, nil
	}
	rec := resultstore.Record{
		ID: e.ID, Name: utf.Cut(e.Name, 255), State: task.StateRequeued, Generation: next.Generation, Life: wire.Life(next), Error: why,
		NodeID: l.cfg.NodeID, ReplyTo: e.ReplyTo, Correlation: e.Correlation,
	}
	store, err := l.store(e, &e.Meta, &rec)
	if err != nil || store == nil {
		return false, err
	}
	err = store.Save(ctx, rec)
	if errors.Is(err, resultstore.ErrStale) {
		err = whyStale(ctx, store, &rec)
	}
	if err != nil {
		return false, err
	}
	rec.Generation = wire.FirstGeneration(rec.Life)
	wire.EachStep(e.Then, func(step *task.Link) bool {
		rec.ID, rec.Name = step.ID, utf.Cut(step.Name, 255)
		if store, serr := l.store(e, &step.Meta, &rec); store != nil && serr == nil {
			if serr := store.Save(ctx, rec); !errors.Is(serr, resultstore.ErrStale) {
				err = serr
			}
		}
		return err == nil
	})
	return err == nil, err
}

// store returns where the record of a task of e's producer is, nil for nowhere, and gives rec its
// time to live.
func (l *Letters) store(e *task.Envelope, meta *task.Metadata, rec *resultstore.Record) (resultstore.ResultStore, error) {
	merged := *meta
	if e.Base != nil {
		merged = task.Merge(*e.Base, *meta)
	}
	rec.TTL = merged.ResultTTL.Or(0)
	if merged.IgnoreResult.Or(false) {
		return nil, nil
	}
	store := l.cfg.Results
	if name := merged.ResultStore.Or(""); name != "" {
		if store = l.cfg.Stores[name]; store == nil {
			return nil, refusal("its results are in store " + utf.Cut(name, 64) + ", which is not configured here")
		}
	}
	if store == nil || resultstore.RepliesOnly(store) {
		return nil, nil
	}
	return store, nil
}

// whyStale says why a store does not let the life of rec begin.
func whyStale(ctx context.Context, store resultstore.ResultStore, rec *resultstore.Record) error {
	kept, err := store.Load(ctx, rec.ID)
	switch {
	case err != nil:
		return err
	case kept.Life >= rec.Life:
		return errAlready
	case kept.State.Terminal() && kept.State != task.StateFailed && kept.State != task.StateExpired:
		return refusal("the task has ended: " + string(kept.State))
	}
	return refusal(fmt.Sprintf("a newer attempt of it is known: %s, generation %d", kept.State, kept.Generation))
}

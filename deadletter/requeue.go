package deadletter

import (
	"cmp"
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

// MaxProblems limits the number of letters that a [Report] names. Further ones are only counted.
const MaxProblems = 1000

// Report is the result of [Letters.Requeue].
type Report struct {
	// Done is the number of requeued letters. Several letters of one message are all counted, until an
	// attempt of the new life starts.
	Done int
	// Already is the number of letters whose new life had begun already. Another letter of the same
	// message, or a call that returned an error, has begun it. They are removed.
	Already int
	// Refused is the number of letters that must not be requeued. They stay.
	Refused int
	// Unfenced is the number of letters of Done without a record that fences the old life. Their store
	// only carries replies, no store is configured, or they cannot be decoded. An attempt of the old
	// life can then still write results.
	Unfenced int
	// Problems are the refused letters with their reasons, up to [MaxProblems].
	Problems []Problem
}

// Problem is a refused letter with the reason.
type Problem struct {
	ID     task.ID
	Reason string
}

func (r *Report) refuse(id task.ID, reason string) {
	if r.Refused++; len(r.Problems) < MaxProblems {
		r.Problems = append(r.Problems, Problem{id, reason})
	}
}

// Requeue begins a new life for the letters of a queue that match f: each is published to its queue
// as a message of the next generation that does not expire.
//
// For each letter it reopens the task's record, publishes the message and removes the letter, in
// this order. After a crash or an error call Requeue again; repeating all steps is safe.
//
// It refuses these letters, which stay:
//   - a member of a group that has counted its end: [Letters.Retry] retries its workflow;
//   - a task with conditions ([task.Conditions]): its job has ended, submit it again;
//   - a task that has succeeded, that was revoked (see [Config].Revoked), or that has a newer
//     attempt;
//   - a task whose store is not configured here, and a message that the broker does not accept.
//
// Refused letters do not count for f.Limit. A message that cannot be decoded is requeued unchanged.
// The report is also valid with an error of the broker or the store, which ends the call at that
// letter.
func (l *Letters) Requeue(ctx context.Context, queue string, f Filter) (Report, error) {
	var r Report
	limit := f.Limit
	f.Limit = min(limit, 0) // refused letters, which stay at the front, must not count
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

// refusal is the reason why a letter stays.
type refusal string

func (r refusal) Error() string { return string(r) }

// errCounted is the refusal of a member of a group that has counted its end.
type errCounted string

func (r errCounted) Error() string { return string(r) }

// Unwrap returns the refusal.
func (r errCounted) Unwrap() error { return refusal(r) }

var errAlready = errors.New("deadletter: requeued already")

func (l *Letters) requeue(ctx context.Context, queue string, letter *Letter, r *Report) (broker.DeadAction, error) {
	var steps []task.Link
	if letter.Task != nil {
		steps = letter.Task.Then
	}
	return l.begin(ctx, queue, letter, wire.NewLife(letter.Message, rand.Text()), steps, l.allowed(ctx, queue, letter), r)
}

// begin begins a new life of a letter with the message next, and counts the letter in r. err is the
// result of the checks before: a refusal is counted, too, and another error is returned. steps are
// the skipped steps whose records begin reopens.
func (l *Letters) begin(ctx context.Context, queue string, letter *Letter, next *broker.Message, steps []task.Link, err error, r *Report) (broker.DeadAction, error) {
	fenced := false
	if err == nil {
		fenced, err = l.reopen(ctx, letter, next, steps, nil)
	}
	var why refusal
	if err == nil {
		// record the error for the futures that wait for the new life
		if err = l.publish(ctx, home(queue), next); errors.As(err, &why) && fenced {
			if _, told := l.reopen(ctx, letter, next, steps, task.Remote(why)); told != nil {
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

// allowed returns a refusal for a task that another run could not change.
func (l *Letters) allowed(ctx context.Context, queue string, letter *Letter) error {
	e := letter.Task
	if e == nil {
		return nil
	}
	if l.cfg.Revoked != nil {
		if revoked, err := l.cfg.Revoked(ctx, home(queue), e); err != nil {
			return err
		} else if revoked {
			return refusal("it or its workflow was canceled, so it would not run; submit it again")
		}
	}
	switch {
	case len(e.Headers) > 0 && e.Headers[task.HeaderConditions] == string(e.ID):
		return refusal("a task with conditions is sent by its job, which has ended; submit it again")
	case e.Group == "":
		return nil
	case l.gather == nil:
		return refusal("it is a member of group " + string(e.Group) + ", and no gatherer is configured to check whether its end was counted")
	// hworker's letters have no time
	case time.Since(cmp.Or(letter.At, e.SentAt)) > resultstore.DefaultGatherTTL:
		return forgotten(e.Group)
	}
	ends, err := l.gather.Members(ctx, e.Group, e.GroupIndex, 1)
	if err == nil && len(ends) > 0 {
		return errCounted("group " + string(e.Group) + " has counted its end; retry the workflow (Letters.Retry, swarmiji workflow retry), or submit it again")
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

// forgotten returns the refusal for a member of an old group.
func forgotten(group task.ID) refusal {
	return refusal("it is a member of group " + string(group) + ", which may be forgotten; submit the workflow again")
}

// reopen stores the state REQUEUED of the new life, with the error why if it is not nil. fenced
// reports whether that stops writes of the old life.
//
// It also reopens the records of steps, which were skipped, as far as the message shows them. For a
// sealed message the consumer does that.
func (l *Letters) reopen(ctx context.Context, letter *Letter, next *broker.Message, steps []task.Link, why *task.RemoteError) (fenced bool, err error) {
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
	wire.EachStep(steps, func(step *task.Link) bool {
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

// store returns the store with the record of a task, or nil if its result is not kept, and sets the
// retention in rec.
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

// whyStale returns why the store refuses the new life of rec: errAlready, a refusal, or an error of
// the store.
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
	return refusal(fmt.Sprintf("a newer attempt is recorded: %s, generation %d", kept.State, kept.Generation))
}

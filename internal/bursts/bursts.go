// Package bursts has the rules of task.WithDebounce and task.WithLatest. It keeps one record for
// each key in a [resultstore.Swapper].
//
// A record has two parts. Wait is the burst that accepts submissions: its first submission
// publishes a message, later ones only store their arguments. Run is the last burst that a consumer
// has taken.
//
//   - Take: the consumer of a message asks what to do with it. It starts the task only if the
//     message has the newest arguments. Otherwise another message with these replaces it, so that
//     retries, redeliveries and dead letters have them, too.
//   - Finish ends a task of WithLatest, and returns the submission that waits for that.
//
// Each message has a name (Mark.Copy). If a process dies between a publish and the next step,
// several messages of a task exist. The first one that takes the burst runs it, the others are
// dropped.
package bursts

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/swarmiji/swarmiji/internal/wake"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/task"
)

// Store keeps the records of bursts. Safe for concurrent use.
type Store struct {
	values resultstore.Swapper
	now    func() time.Time
}

// New returns the bursts whose records are in values. Returns nil if values is nil.
func New(values resultstore.Swapper) *Store {
	if values == nil {
		return nil
	}
	return &Store{values, time.Now}
}

// change reads the record of a key, calls step and stores the record, again if another process has
// changed it meanwhile. known is a guess of the value. step reports whether it has changed the
// record; it may be called several times. change returns the value after the call.
func (s *Store) change(ctx context.Context, key string, known []byte, step func(r *record, now time.Time) bool) ([]byte, error) {
	sure := false
	pause := task.Backoff{Base: 2 * time.Millisecond, Max: 200 * time.Millisecond}
	for attempt := 0; ; attempt++ {
		r, err := decode(known)
		if err != nil {
			return nil, err
		}
		now := s.now()
		if !step(r, now) {
			if sure {
				return known, nil
			}
			if known, err = s.values.Value(ctx, key); err != nil {
				return nil, err
			}
			sure = true
			continue
		}
		next, err := r.encode()
		if err != nil {
			return nil, err
		}
		there, err := s.values.Swap(ctx, key, known, next, r.ttl(now))
		if err != nil {
			return nil, err
		}
		if bytes.Equal(there, next) {
			return next, nil
		}
		known, sure = there, true
		if attempt > 1 && !wake.Sleep(ctx, pause.Interval(attempt-2)) {
			return nil, fmt.Errorf("burst: %w: other submissions of the key come first: %w", resultstore.ErrUnavailable, context.Cause(ctx))
		}
	}
}

// Submission is one submission of a task with a burst.
type Submission struct {
	ID   task.ID // its own id
	Name string
	Mark Mark
	Data json.RawMessage // the message, as wire.Prepare returns it
	Once bool            // the task runs at most once
}

// Joined says what to do with a submission.
type Joined struct {
	ID   task.ID // of the burst
	Busy bool    // the first submission of the burst is being published: try again
	// Publish is set if a message must be published, to be delivered at At. It has the arguments of
	// the submission and the id of the burst. Then call Opened.
	Publish bool
	At      time.Time
	// Generation belongs to the message. It is above 0 if the message only replaces a consumer that
	// dies: otherwise the end of the running task publishes the burst.
	Generation int

	value  []byte // of the record
	opens  bool   // the submission begins the burst
	unsent bool   // no message of the burst was published before
}

// Check returns an error if a submission is too large.
func (s *Submission) Check() error {
	if len(s.Data) > maxData {
		return fmt.Errorf("%w: a submission of a burst has %d bytes, at most %d are stored", resultstore.ErrTooLarge, len(s.Data), maxData)
	}
	return nil
}

// Join adds a submission to the burst of its key, or begins one. ended reports whether the end of a
// life of a task is recorded. Returns errors of the store.
func (s *Store) Join(ctx context.Context, sub Submission, ended func(id task.ID, life int) bool) (j Joined, err error) {
	m := &sub.Mark
	j.value, err = s.change(ctx, m.storeKey(sub.Name), nil, func(r *record, now time.Time) bool {
		j = Joined{}
		if run := r.Run; run.active(now) {
			since := now.Sub(time.UnixMilli(run.Since))
			run.Ended = since > goneTime || since > doubtTime && ended(run.ID, run.Life)
		}
		switch w := r.Wait; {
		case w == nil && r.Run.active(now):
			r.Wait = &waiting{ID: next(r.Run), Version: m.Version, Data: sub.Data, First: now.UnixMilli(), Due: now.UnixMilli()}
			j.ID = r.Wait.ID
			j.guard(&sub, r, now)
		case w == nil:
			r.Wait = &waiting{ID: sub.ID, Version: m.Version, First: now.UnixMilli(), Due: now.Add(m.Quiet).UnixMilli(), Sent: now.UnixMilli(), Opening: true}
			j.ID, j.Publish, j.opens = sub.ID, true, true
		case w.Opening:
			j.Busy = w.Version != m.Version
			j.ID, j.Publish, j.opens = w.ID, !j.Busy, true
		default:
			j.ID, j.Publish = w.ID, !r.Run.active(now) && w.overdue(now)
			w.Version, w.Data = m.Version, sub.Data
			w.Due = min(now.Add(m.Quiet).UnixMilli(), w.First+m.Most.Milliseconds())
			// If no publish is known, Opened stores this one after its confirm. Until then other
			// processes publish too.
			if j.unsent = j.Publish && w.Sent == 0; j.Publish && !j.unsent {
				w.Sent = now.UnixMilli()
			}
			j.guard(&sub, r, now)
		}
		if j.Publish && !m.Latest {
			j.At = now.Add(time.UnixMilli(r.Wait.Due).Sub(now))
		}
		return !j.Busy
	})
	return j, err
}

// guard asks for a message of a burst that waits for the end of a task without a message in the
// broker: if the consumer of the task dies, no process ends it.
func (j *Joined) guard(sub *Submission, r *record, now time.Time) {
	w := r.Wait
	if w.Sent == 0 && !w.Guard && r.Run.active(now) && (sub.Once || r.Run.Until != 0) {
		j.Publish, j.At, j.Generation = true, now.Add(leaseTime), guardGeneration
	}
}

// next returns the id of the burst that waits for the end of run.
func next(run *running) task.ID { return task.Derive(run.ID, fmt.Sprint("burst ", run.Life)) }

// Outcome is the outcome of the publish of a message.
type Outcome int

// Outcomes of a publish.
const (
	Confirmed Outcome = iota
	Refused           // the broker does not have the message
	Unknown
)

// Opened stores the outcome of the publish that Join has asked for. Returns errors of the store,
// and [resultstore.ErrStale] if the record of a confirmed message has expired. After an error it is
// not known whether the arguments of the submission will run.
func (s *Store) Opened(ctx context.Context, sub Submission, j Joined, o Outcome) error {
	guards := j.Generation > 0
	if o == Confirmed && !j.opens && !j.unsent && !guards {
		return nil
	}
	stale := false
	_, err := s.change(ctx, sub.Mark.storeKey(sub.Name), j.value, func(r *record, now time.Time) bool {
		w := r.Wait
		if w == nil || w.ID != j.ID {
			stale = !guards && (r.Run == nil || r.Run.ID != j.ID) // otherwise a consumer has taken it
			return false
		}
		stale = false
		switch {
		case guards:
			change := o == Confirmed && !w.Guard
			w.Guard = w.Guard || change
			return change
		case w.Opening && o == Refused:
			r.Wait = nil
			return true
		case o != Confirmed && w.Sent != 0: // the next submission publishes again
			w.Opening, w.Sent = false, 0
			if w.Version == sub.Mark.Version {
				w.Data = sub.Data
			}
			return true
		}
		change := w.Opening || w.Sent == 0 && o == Confirmed
		if w.Opening = false; w.Sent == 0 && o == Confirmed {
			w.Sent = now.UnixMilli()
		}
		return change
	})
	if err == nil && stale && o == Confirmed {
		err = fmt.Errorf("burst: %w: another submission has the key", resultstore.ErrStale)
	}
	return err
}

// Package waits explains why a message waits: for its time, for its burst, or for its fairness key.
package waits

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/inspect/internal/phrase"
	"github.com/swarmiji/swarmiji/internal/bursts"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/settings"
	"github.com/swarmiji/swarmiji/task"
)

// Reason says why a message waits. Without a reason it is zero.
type Reason struct {
	Text string    // a sentence
	At   time.Time // when the wait ends; zero: not known
	Key  string    // of the burst, or the fairness key
	Task task.ID   // the task that must end first; "": none
}

// Due explains a message that the broker delivers at a later time. e is the message, or nil if it
// cannot be read. results keeps the bursts; a store without them knows only that time. Key is not
// empty for a task of a burst. Returns the errors of the store.
func Due(ctx context.Context, results resultstore.ResultStore, e *task.Envelope, at time.Time) (Reason, error) {
	r := Reason{Text: fmt.Sprintf("It is due at %s.", phrase.Stamp(at)), At: at}
	if e == nil || e.Burst == "" {
		return r, nil
	}
	m, err := bursts.ReadMark(e.Burst)
	if err != nil {
		return r, nil //nolint:nilerr // the consumer reports it
	}
	r.Key = m.Key
	var s bursts.State
	if store := bursts.New(resultstore.SwapperOf(nil, results)); store != nil {
		if s, err = store.Look(ctx, e.Name, m, e.ID); err != nil {
			return r, err
		}
	}
	switch {
	case s.Behind != "":
		r.Task = s.Behind
		r.Text = fmt.Sprintf("It waits for the end of task %s, which has the key %q of task.WithLatest.", s.Behind, m.Key)
	case !m.Latest:
		if !s.Due.IsZero() {
			r.At = s.Due
		}
		r.Text = fmt.Sprintf("It is due at %s, and later if another submission of its burst %q comes.", phrase.Stamp(r.At), m.Key)
	}
	return r, nil
}

// OfKey explains a message whose fairness key has reached its stored bound. Bounds that only the
// consumers know are not seen. Returns the errors of the settings and of the broker.
func OfKey(ctx context.Context, b broker.Broker, s settings.Store, queue, key string, now time.Time) (r Reason, err error) {
	stored, found, err := settings.QueueBounds(queue).Get(ctx, s)
	if err != nil || !found || stored.Check() != nil {
		return r, err
	}
	one, ok := stored.Keys[key]
	if !ok && stored.Key != nil {
		one = *stored.Key
	}
	bound := broker.Bound{Max: one.Max}
	if _, bound.Rate, bound.Per, err = one.Parse(); err != nil {
		return r, nil //nolint:nilerr // consumers ignore it too
	}
	page, err := broker.ListKeys(ctx, b, queue, key, 1)
	switch {
	case errors.Is(err, broker.ErrUnsupported), errors.Is(err, broker.ErrMalformed), errors.Is(err, broker.ErrNoQueue):
		return r, nil // consumers cannot use the bounds
	case err != nil || len(page.Keys) == 0 || page.Keys[0].Key != key:
		return r, err
	}
	k := &page.Keys[0]
	switch free := bound.FreeAt(k.Used); {
	case bound.Max > 0 && k.Held >= bound.Max:
		r.Text = fmt.Sprintf("Its fairness key %q is at its limit: %d of %d tasks are held.", key, k.Held, bound.Max)
	case free.After(now):
		r.At = free
		r.Text = fmt.Sprintf("The rate of its fairness key %q, %s, is used until %s.", key, one.Rate, phrase.Stamp(free))
	default:
		return r, nil
	}
	r.Key = key
	return r, nil
}

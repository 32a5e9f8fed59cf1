package settings

import (
	"context"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/swarmiji/swarmiji/task"
)

// Bound limits the tasks of a fairness key or of a whole fair queue, over all consumers. The zero
// value has no limit.
type Bound struct {
	// Rate limits how often tasks are taken, such as "10/s", see task.ParseRate. "": no limit.
	Rate string `json:"rate,omitempty"`
	// Max limits how many tasks are held at once. 0: no limit.
	Max int `json:"max,omitempty"`
}

// Bounds are the limits of a fair queue where its tasks are taken. They are placed over
// consumer.QueueConfig.Bounds: the parts that are not set stay as the consumers configure them.
type Bounds struct {
	Key *Bound `json:"key,omitempty"` // of each key
	All *Bound `json:"all,omitempty"` // of the whole queue
	// Keys limit single keys, in place of Key. At most MaxBoundKeys.
	Keys map[string]Bound `json:"keys,omitempty"`
	By   string           `json:"by,omitempty"`
	At   time.Time        `json:"at,omitzero"`
}

// MaxBoundKeys is the largest number of Keys in [Bounds]. Fewer fit if they are long, see MaxData.
const MaxBoundKeys = 100

// IsZero reports whether no part of b is set.
func (b *Bounds) IsZero() bool { return b.Key == nil && b.All == nil && len(b.Keys) == 0 }

// QueueBounds is the key of the bounds of a queue.
func QueueBounds(queue string) Key[Bounds] {
	return Key[Bounds]{ofQueue + "/" + queue + "/" + isBounds}
}

// BoundQueue changes the bounds of a fair queue. Consumers follow the change. Only parts of change
// that are set are changed:
//
//   - Key and All replace the former ones, also by a Bound without a limit.
//   - Each of Keys replaces the Bound of its key.
//
// A change without any part removes all stored bounds.
//
// Returns [ErrBad] for an invalid name or bound and for too many keys, and the errors of the store.
// See UnboundQueue to remove parts.
func BoundQueue(ctx context.Context, s Store, queue string, change Bounds) error {
	if change.IsZero() {
		_, err := UnboundQueue(ctx, s, queue)
		return err
	}
	return QueueBounds(queue).Update(ctx, s, func(b *Bounds, _ bool) error {
		if change.Key != nil {
			b.Key = change.Key
		}
		if change.All != nil {
			b.All = change.All
		}
		for key, one := range change.Keys {
			if b.Keys == nil {
				b.Keys = make(map[string]Bound)
			}
			b.Keys[key] = one
		}
		if b.By, b.At = change.By, change.At; b.At.IsZero() {
			b.At = now()
		}
		return b.Check()
	})
}

// UnboundQueue removes the stored bounds of a queue, or only those of single keys if keys are
// given. Consumers then use the bounds of their configuration. It reports whether bounds were
// removed. Returns the errors of the store.
func UnboundQueue(ctx context.Context, s Store, queue string, keys ...string) (found bool, err error) {
	k := QueueBounds(queue)
	if len(keys) == 0 {
		return k.Remove(ctx, s)
	}
	err = k.Update(ctx, s, func(b *Bounds, stored bool) error {
		found = false
		for _, key := range keys {
			if _, ok := b.Keys[key]; ok {
				found = true
				delete(b.Keys, key)
			}
		}
		if !stored || !found {
			return errNoKey
		}
		return nil
	})
	if errors.Is(err, errNoKey) {
		return false, nil
	}
	if err == nil { // the last part may be gone
		_, err = k.RemoveIf(ctx, s, (*Bounds).IsZero)
	}
	return found, err
}

// errNoKey ends an update that would change nothing.
var errNoKey = errors.New("no such key")

// maxKey is the largest length of a fairness key.
const maxKey = 255

// Check returns all problems of b, joined; each wraps [ErrBad].
func (b *Bounds) Check() error {
	err := checkTexts(b.By, "")
	if len(b.Keys) > MaxBoundKeys {
		err = errors.Join(err, fmt.Errorf("%w: bounds of %d keys, at most %d", ErrBad, len(b.Keys), MaxBoundKeys))
	}
	for _, one := range []*Bound{b.Key, b.All} {
		if one != nil {
			err = errors.Join(err, one.check())
		}
	}
	for key, one := range b.Keys {
		if len(key) > maxKey || !utf8.ValidString(key) {
			err = errors.Join(err, fmt.Errorf("%w: a fairness key has at most %d bytes, in UTF-8", ErrBad, maxKey))
		}
		err = errors.Join(err, one.check())
	}
	return err
}

// check returns all problems of b, joined; each wraps [ErrBad]. They are those of a [Limit].
func (b *Bound) check() error { return CheckLimit(&Limit{Rate: b.Rate, Concurrency: b.Max}) }

// Parse returns the parts of b: the largest number of held tasks, and the rate of tasks in each
// per. 0: no limit.
func (b *Bound) Parse() (most, rate int, per time.Duration, err error) {
	rate, per, err = task.ParseRate(b.Rate)
	return b.Max, rate, per, err
}

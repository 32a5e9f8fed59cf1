package events

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// ErrNotRetained is what Replay returns on a bus that is not configured to keep events.
var ErrNotRetained = errors.New("events: the bus keeps no events")

// Retainer is a bus that keeps events for a time, for listeners that come late. What it keeps is a [Retention] in its
// configuration, which has to be the same for all nodes. All other promises of the bus hold: events are kept at most once,
// and neither Publish nor a task waits for it.
type Retainer interface {
	// Replay opens a stream that begins with the kept events that f lets through and that the bus took at or after since
	// (zero: all it has), in the order in which it took them, and goes on with those it takes from now on: there is no gap
	// and no event twice between the old and the new ones. A lost connection makes no gap either, as long as it is shorter
	// than the retention. Only events of kept types are in such a stream. On a bus that keeps none it is [ErrNotRetained].
	Replay(ctx context.Context, f Filter, since time.Time) (Subscription, error)
}

// RetentionTeller is a [Retainer] that tells what it keeps, for those who rely on it.
type RetentionTeller interface {
	// Retention returns what the bus was configured to keep, with its defaults.
	Retention() Retention
}

// Retention says which events a [Retainer] keeps. The zero value keeps none.
type Retention struct {
	// Age is how long an event is kept at least, unless Max removes it earlier. 0: nothing is kept.
	Age time.Duration
	// Max is how many of the newest events are kept at least; much more than that are not, so that memory is bounded. 0:
	// [DefaultRetained], 100,000.
	Max int
	// Types are the types that are kept. Nil: all, which makes the bus write each event twice.
	Types []string
}

// DefaultRetained is the default of [Retention].Max.
const DefaultRetained = 100_000

// Complete returns r with its defaults, and all its problems.
func (r Retention) Complete() (Retention, error) {
	var errs []error
	if r.Age < 0 {
		errs = append(errs, fmt.Errorf("events: retention age %v is negative", r.Age))
	}
	if r.Max < 0 {
		errs = append(errs, fmt.Errorf("events: retention of %d events is negative", r.Max))
	}
	if r.Max == 0 {
		r.Max = DefaultRetained
	}
	return r, errors.Join(errs...)
}

// On reports whether anything is kept.
func (r Retention) On() bool { return r.Age > 0 }

// Keeps reports whether events of a type are kept.
func (r Retention) Keeps(typ string) bool {
	return r.On() && (r.Types == nil || slices.Contains(r.Types, typ))
}

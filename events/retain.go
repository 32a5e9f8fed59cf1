package events

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// ErrNotRetained is returned by Replay on a bus whose configuration keeps no events.
var ErrNotRetained = errors.New("events: the bus keeps no events; set Retain in its configuration")

// Retainer is a bus that keeps events for a time, for listeners that subscribe later. Its
// configuration has a [Retention], which must be the same for all nodes. All other promises of the
// bus hold: an event is kept at most once, and neither Publish nor a task waits for it.
type Retainer interface {
	// Replay opens a stream of kept events that match f and reached the bus at or after since,
	// followed by new ones. Zero since selects all kept events. Events arrive in the order in which
	// the bus received them, without a gap or a duplicate between old and new ones. A lost connection
	// causes no gap if it is shorter than the retention.
	//
	// The stream holds only events of kept types. Returns [ErrNotRetained] if the bus keeps no events.
	Replay(ctx context.Context, f Filter, since time.Time) (Subscription, error)
}

// RetentionTeller is a [Retainer] that reports its retention to callers that rely on it.
type RetentionTeller interface {
	// Retention returns the configured retention with its defaults.
	Retention() Retention
}

// Retention selects the events that a [Retainer] keeps. The zero value keeps none.
type Retention struct {
	// Age is the least time for which an event is kept, unless Max removes it earlier. 0: no event is
	// kept.
	Age time.Duration
	// Max is the least number of the newest events that are kept. The bus keeps few more than that, so
	// that memory is limited. 0: [DefaultRetained], 100,000.
	Max int
	// Types lists the kept types. Nil: all types, so that the bus writes each event twice.
	Types []string
}

// DefaultRetained is the default of [Retention].Max.
const DefaultRetained = 100_000

// Complete returns r with its defaults set, and all its problems joined in one error: a negative
// Age or Max.
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

// On reports whether any event is kept.
func (r Retention) On() bool { return r.Age > 0 }

// Keeps reports whether events of type typ are kept.
func (r Retention) Keeps(typ string) bool {
	return r.On() && (r.Types == nil || slices.Contains(r.Types, typ))
}

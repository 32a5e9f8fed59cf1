package settings

import (
	"context"
	"time"

	"github.com/swarmiji/swarmiji/internal/wake"
	"github.com/swarmiji/swarmiji/task"
)

// DefaultPoll is the time after which [Follow] reads the values without being notified of a change.
const DefaultPoll = 30 * time.Second

// listTimeout limits one read of all values.
const listTimeout = 10 * time.Second

// Follow calls apply with all values of s now, after each change, and every [DefaultPoll], until
// ctx ends. It blocks until then. Several changes may be one call, and a call may come without a
// change. If the values cannot be read, it tries again, and calls failed with the first error of a
// series. Both functions are called on the calling goroutine.
func Follow(ctx context.Context, s Store, apply func([]Value), failed func(error)) {
	changed := wake.New()
	stop := s.Watch(changed.Notify)
	defer stop()
	var gap task.Backoff
	for failures := 0; ctx.Err() == nil; {
		reading, cancel := context.WithTimeout(ctx, listTimeout)
		values, err := s.List(reading, "")
		cancel()
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			if failures == 0 {
				failed(err)
			}
			wake.Sleep(ctx, gap.Interval(failures))
			failures++
		default:
			failures = 0
			apply(values)
			changed.Wait(ctx, DefaultPoll)
		}
	}
}

// Package wake has what goroutines sleep and are woken with: a sleep that a context ends, and a signal.
package wake

import (
	"context"
	"time"
)

// Sleep waits for d. It reports false if ctx ended before.
func Sleep(ctx context.Context, d time.Duration) bool { return SleepOr(ctx, nil, d) }

// SleepOr is Sleep that also reports false if done was closed before. A nil done never ends it.
func SleepOr(ctx context.Context, done <-chan struct{}, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
	case <-done:
	}
	return false
}

// Signal wakes a goroutine that receives from it. It keeps one notification for a goroutine that comes later; further ones
// are the same. Safe for concurrent use. A nil Signal never wakes anybody.
type Signal chan struct{}

// New returns a Signal without a notification.
func New() Signal { return make(Signal, 1) }

// Notify wakes one goroutine: one that waits now, or the next one. It does not block.
func (s Signal) Notify() {
	select {
	case s <- struct{}{}:
	default:
	}
}

// Wait waits for a notification, and for d at most. It reports false if ctx ended before.
func (s Signal) Wait(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-s:
		return true
	case <-ctx.Done():
		return false
	}
}

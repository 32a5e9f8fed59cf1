// Package wake provides a sleep that a context ends, and a signal that wakes goroutines.
package wake

import (
	"context"
	"time"
)

// Sleep waits for d. It returns false if ctx ended first.
func Sleep(ctx context.Context, d time.Duration) bool { return SleepOr(ctx, nil, d) }

// SleepOr waits for d. It returns false if ctx ended or done was closed first. A nil done has no
// effect.
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

// Signal wakes a goroutine that receives from it. It keeps one notification for a later receiver;
// further notifications have no effect until then. Safe for concurrent use. A nil Signal never
// wakes a goroutine.
type Signal chan struct{}

// New returns a Signal without a notification.
func New() Signal { return make(Signal, 1) }

// Notify wakes one goroutine: a waiting one, or the next one to wait. It does not block.
func (s Signal) Notify() {
	select {
	case s <- struct{}{}:
	default:
	}
}

// Wait waits for a notification, but at most for d. It returns false if ctx ended first.
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

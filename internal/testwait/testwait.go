// Package testwait is how tests wait: bounded, and so generously that only what hangs reaches the bound on a machine that does much
// else. Only tests may import it.
package testwait

import (
	"context"
	"testing"
	"time"
)

const (
	patience = 30 * time.Second
	tick     = 5 * time.Millisecond
)

// Long returns a ctx that ends a minute from now, long after what is awaited should have happened, or after the test and its clean-ups.
func Long(tb testing.TB) context.Context {
	tb.Helper()
	return within(tb, time.Minute)
}

// Brief returns a ctx that ends 400 ms from now: for what should not happen, and for calls that should end with their ctx.
func Brief(tb testing.TB) context.Context {
	tb.Helper()
	return within(tb, 400*time.Millisecond)
}

// within is not tb.Context's child, which ends before the clean-ups.
func within(tb testing.TB, d time.Duration) context.Context {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(tb.Context()), d)
	tb.Cleanup(cancel)
	return ctx
}

// Until polls until ok holds; the test fails at once if it does not within half a minute.
func Until(tb testing.TB, what string, ok func() bool) {
	tb.Helper()
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	for end := time.Now().Add(patience); !ok(); <-ticker.C {
		if time.Now().After(end) {
			tb.Fatalf("never happened: %s", what)
		}
	}
}

// UntilNil is Until with a function that says why it is not so yet.
func UntilNil(tb testing.TB, what string, f func() error) {
	tb.Helper()
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	for end := time.Now().Add(patience); ; <-ticker.C {
		err := f()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			tb.Fatalf("never happened: %s: %v", what, err)
		}
	}
}

// Closed waits until ch is closed, or something is sent; the test fails at once if that does not happen within half a minute.
func Closed(tb testing.TB, what string, ch <-chan struct{}) {
	tb.Helper()
	select {
	case <-ch:
	case <-time.After(patience):
		tb.Fatalf("never happened: %s", what)
	}
}

// Package testwait holds the bounded waits of tests. The limits are long: even on a busy machine
// only a test that hangs reaches them. Only tests may import it.
package testwait

import (
	"context"
	"testing"
	"time"
)

const (
	patience = 4 * time.Minute
	tick     = 5 * time.Millisecond
)

// Long returns a context that ends after four minutes, or after the test and its clean-ups. Use it
// for calls that should finish much earlier.
func Long(tb testing.TB) context.Context {
	tb.Helper()
	return within(tb, patience)
}

// Brief returns a context that ends after 400 ms. Use it for events that should not happen, and for
// calls that should end with their context.
func Brief(tb testing.TB) context.Context {
	tb.Helper()
	return within(tb, 400*time.Millisecond)
}

// within does not derive from the cancellation of tb.Context, which ends before the clean-ups.
func within(tb testing.TB, d time.Duration) context.Context {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(tb.Context()), d)
	tb.Cleanup(cancel)
	return ctx
}

// Until polls ok until it returns true. It fails the test at once if that takes more than four
// minutes.
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

// UntilNil polls f until it returns nil. If that takes more than four minutes, it fails the test
// at once with f's last error.
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

// Closed waits until ch is closed or receives a value. It fails the test at once if that takes more
// than two minutes.
func Closed(tb testing.TB, what string, ch <-chan struct{}) {
	tb.Helper()
	select {
	case <-ch:
	case <-time.After(patience):
		tb.Fatalf("never happened: %s", what)
	}
}

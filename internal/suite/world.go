package suite

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"
)

// Adapter is the interface that every adapter of every port implements.
type Adapter interface {
	Close(ctx context.Context) error
}

// Config holds the settings that a [World] gets from a suite's harness.
type Config[A Adapter] struct {
	// Port is the name of the interface A, for failure messages.
	Port string

	// Open connects to the namespace as another process would. Required.
	Open func(t testing.TB) A

	// Secret is the password in the configuration of Open. No error may contain it. Empty: the
	// configuration has no password.
	Secret string

	// Slack limits how late an event may be on a machine that does other work too. Default: 5s.
	Slack time.Duration

	// Quiet limits how long a case watches before it concludes that no event comes. Default: 500ms.
	Quiet time.Duration

	// Patience limits every wait for an event that must happen. Default: 1 min.
	Patience time.Duration
}

// World is the environment of one case: a namespace, the adapters opened in it, and bounded waits.
//
// Open, CloseAll and the methods that never fail the case at once are safe for concurrent use.
type World[A Adapter] struct {
	testing.TB
	Slack, Quiet, Patience time.Duration // from the Config, or its defaults

	port, secret string
	open         func(t testing.TB) A

	mu     sync.Mutex
	opened []A
}

// NewWorld makes the world of one case. No adapter is open in it.
func NewWorld[A Adapter](t testing.TB, c Config[A]) *World[A] {
	w := &World[A]{TB: t, Slack: c.Slack, Quiet: c.Quiet, Patience: c.Patience, port: c.Port, secret: c.Secret, open: c.Open}
	if w.Slack == 0 {
		w.Slack = 5 * time.Second
	}
	if w.Quiet == 0 {
		w.Quiet = 500 * time.Millisecond
	}
	if w.Patience == 0 {
		w.Patience = time.Minute
	}
	return w
}

// Open connects to the namespace as another process would. CloseAll closes the adapter that Open
// returns.
func (w *World[A]) Open() A {
	w.Helper()
	return w.Own(w.open(w.TB))
}

// Own registers a, which Open did not open, to be closed by CloseAll. It returns a.
func (w *World[A]) Own(a A) A {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.opened = append(w.opened, a)
	return a
}

// CloseAll closes all adapters of the world. An error of Close fails the case.
func (w *World[A]) CloseAll() {
	w.Helper()
	w.mu.Lock()
	opened := w.opened
	w.opened = nil
	w.mu.Unlock()
	for _, a := range opened {
		w.Close(a)
	}
}

// Close closes a. If that returns an error, the case fails and continues.
func (w *World[A]) Close(a A) {
	w.Helper()
	ctx, cancel := w.Ctx()
	defer cancel()
	if err := w.Clean(a.Close(ctx)); err != nil {
		w.Errorf("%s.Close: %v", w.port, err)
	}
}

// Ctx returns a context that ends after the suite's patience.
func (w *World[A]) Ctx() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), w.Patience)
}

// Clean returns err and fails the case if a text of err contains the secret. The case continues.
func (w *World[A]) Clean(err error) error {
	w.Helper()
	if err != nil && w.secret != "" && strings.Contains(fmt.Sprintf("%v %+v %#v", err, err, err), w.secret) {
		w.Errorf("the text of a %T holds the password", err)
	}
	return err
}

// Must fails the case at once if err is not nil. The failure has the text of format and args, and
// err.
func (w *World[A]) Must(err error, format string, args ...any) {
	w.Helper()
	if w.Clean(err) != nil {
		w.Fatalf("%s: %v", fmt.Sprintf(format, args...), err)
	}
}

// WantIs fails the case unless errors.Is(err, want). The case continues.
func (w *World[A]) WantIs(err, want error, format string, args ...any) {
	w.Helper()
	if !errors.Is(w.Clean(err), want) {
		w.Errorf("%s: got error %v, want one that is %v", fmt.Sprintf(format, args...), err, want)
	}
}

// Until polls cond until it returns true. It fails the case at once, with what as the name of the
// condition, if the suite's patience ends first.
func (w *World[A]) Until(what string, cond func() bool) {
	w.Helper()
	if !w.Poll(cond) {
		w.Fatalf("%s: not within %v", what, w.Patience)
	}
}

// Poll calls cond until it returns true or the suite's patience ends. It reports whether cond
// returned true.
func (w *World[A]) Poll(cond func() bool) bool {
	deadline := time.NewTimer(w.Patience)
	defer deadline.Stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !cond() {
		select {
		case <-tick.C:
		case <-deadline.C:
			return false
		}
	}
	return true
}

// Ends waits for a value from ch and returns it. A closed channel counts as a value. It fails the
// case at once, with what as the name of the event, if the suite's patience ends first.
func Ends[T any, A Adapter](w *World[A], ch <-chan T, what string) T {
	w.Helper()
	t := time.NewTimer(w.Patience)
	defer t.Stop()
	select {
	case v := <-ch:
		return v
	case <-t.C:
		w.Fatalf("%s: not within %v", what, w.Patience)
		panic("unreachable")
	}
}

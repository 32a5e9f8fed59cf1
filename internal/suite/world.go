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

// Adapter is what every adapter of every port can do.
type Adapter interface {
	Close(ctx context.Context) error
}

// Config is what a [World] takes from a suite's harness.
type Config[A Adapter] struct {
	// Port is the name of the interface A, for failures.
	Port string

	// Open connects to the namespace as another process would. Required.
	Open func(t testing.TB) A

	// Secret is the password in the configuration of Open. No error may contain it. Empty: there is none.
	Secret string

	// Slack is how late something may be on a machine that does other work too. Zero: 5 s.
	Slack time.Duration

	// Quiet is how long a case looks before it believes that nothing comes. Zero: 500 ms.
	Quiet time.Duration

	// Patience bounds every wait for something that must happen. Zero: 30 s.
	Patience time.Duration
}

// World is what a case works with: a namespace, the adapters opened in it, and bounded waits. Open, CloseAll and what
// never fails the case at once may be called from several goroutines.
type World[A Adapter] struct {
	testing.TB
	Slack, Quiet, Patience time.Duration // those of the Config, or what stands for zero there

	port, secret string
	open         func(t testing.TB) A

	mu     sync.Mutex
	opened []A
}

// NewWorld makes the world of one case, in which nothing is open.
func NewWorld[A Adapter](t testing.TB, c Config[A]) *World[A] {
	w := &World[A]{TB: t, Slack: c.Slack, Quiet: c.Quiet, Patience: c.Patience, port: c.Port, secret: c.Secret, open: c.Open}
	if w.Slack == 0 {
		w.Slack = 5 * time.Second
	}
	if w.Quiet == 0 {
		w.Quiet = 500 * time.Millisecond
	}
	if w.Patience == 0 {
		w.Patience = 30 * time.Second
	}
	return w
}

// Open connects as another process would. CloseAll closes what it returns.
func (w *World[A]) Open() A {
	w.Helper()
	return w.Own(w.open(w.TB))
}

// Own has CloseAll close a, which was not opened by Open, and returns it.
func (w *World[A]) Own(a A) A {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.opened = append(w.opened, a)
	return a
}

// CloseAll closes everything that was opened.
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

// Close closes a; the case fails, and goes on, if that returns an error.
func (w *World[A]) Close(a A) {
	w.Helper()
	ctx, cancel := w.Ctx()
	defer cancel()
	if err := w.Clean(a.Close(ctx)); err != nil {
		w.Errorf("%s.Close: %v", w.port, err)
	}
}

// Ctx is a context that ends with the suite's patience.
func (w *World[A]) Ctx() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), w.Patience)
}

// Clean returns err and fails the case if the secret is in it.
func (w *World[A]) Clean(err error) error {
	w.Helper()
	if err != nil && w.secret != "" && strings.Contains(fmt.Sprintf("%v %+v %#v", err, err, err), w.secret) {
		w.Errorf("the text of a %T holds the password", err)
	}
	return err
}

// Must fails the case at once if err is not nil.
func (w *World[A]) Must(err error, format string, args ...any) {
	w.Helper()
	if w.Clean(err) != nil {
		w.Fatalf("%s: %v", fmt.Sprintf(format, args...), err)
	}
}

// WantIs checks the class of an error.
func (w *World[A]) WantIs(err, want error, format string, args ...any) {
	w.Helper()
	if !errors.Is(w.Clean(err), want) {
		w.Errorf("%s: got error %v, want one that is %v", fmt.Sprintf(format, args...), err, want)
	}
}

// Until polls cond until it holds, and fails the case at once if the suite's patience ends first.
func (w *World[A]) Until(what string, cond func() bool) {
	w.Helper()
	if !w.Poll(cond) {
		w.Fatalf("%s: not within %v", what, w.Patience)
	}
}

// Poll calls cond until it holds or the suite's patience ends, and reports which.
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

// Ends waits for a value that another goroutine promised; a closed channel counts as one. It fails the case at once if the
// suite's patience ends first.
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

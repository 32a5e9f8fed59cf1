// Package steps repeats the steps of a settlement, and calls hooks of users around steps.
package steps

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/consumer/internal/workflow"
	"github.com/swarmiji/swarmiji/internal/guard"
	"github.com/swarmiji/swarmiji/internal/utf"
	"github.com/swarmiji/swarmiji/internal/wake"
	"github.com/swarmiji/swarmiji/task"
)

// Errors that end a settlement.
var (
	// ErrDone ends a settlement because another attempt has settled the task. There is nothing left to
	// do.
	ErrDone = errors.New("swarmiji: settled by another attempt")
	// ErrUncertain ends a settlement that sent a message with an unknown outcome: the broker may have
	// the message or not. The message must not be sent again.
	ErrUncertain = errors.New("swarmiji: published with an unknown outcome; not published again because the task runs at most once")
)

// Repeat calls step with ctx until it succeeds, with growing pauses, and returns nil then. It calls
// first once, with the first error that it repeats. It returns early:
//
//   - the error of step, if that is ErrDone, ErrUncertain, [workflow.ErrUnsendable] or a lost
//     delivery
//   - the last error of step, if ctx has ended
//   - [broker.ErrLeaseLost], if lost is closed during a pause
//
// A nil lost is never closed.
func Repeat(ctx context.Context, lost <-chan struct{}, step func(context.Context) error, first func(error)) error {
	var gap task.Backoff
	for attempt := 0; ; attempt++ {
		err := step(ctx)
		if err == nil || broker.Gone(err) || errors.Is(err, ErrDone) || errors.Is(err, workflow.ErrUnsendable) || errors.Is(err, ErrUncertain) {
			return err
		}
		if attempt == 0 {
			first(err)
		}
		if wake.SleepOr(ctx, lost, gap.Interval(attempt)) {
			continue
		}
		if ctx.Err() != nil {
			return err
		}
		return broker.ErrLeaseLost
	}
}

// Until returns a context that ends after timeout, with ctx, or when early is closed. Call release
// when the context is no longer used; it waits for the goroutine that watches early.
func Until(ctx context.Context, timeout time.Duration, early <-chan struct{}) (_ context.Context, release func()) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	done := make(chan struct{})
	go func() {
		defer close(done)
		select {
		case <-early:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, func() {
		cancel()
		<-done
	}
}

// Veto calls hook. It returns nil if hook returns nil. Otherwise it returns the error or the panic
// of hook, with what, the name of the prevented action.
func Veto(what string, hook func() error) error {
	if err := guard.Call(hook); err != nil {
		return fmt.Errorf("swarmiji: consumer: hook before %s: %w", what, err)
	}
	return nil
}

// Around calls before, do and after in order; before and after may be nil. The argument what names
// the action in errors. The hooks get ctx and queues. safely calls a function and recovers its
// panic.
//
// Returns the error or panic of before, which prevents do and after. Otherwise returns the error of
// do, which after receives.
func Around(
	ctx context.Context, safely func(hook string, fn func()), what string, queues []string,
	before func(context.Context, []string) error, do func() error, after func(context.Context, []string, error),
) error {
	if before != nil {
		if err := Veto(what, func() error { return before(ctx, queues) }); err != nil {
			return err
		}
	}
	err := do()
	if after != nil {
		safely("after "+what, func() { after(ctx, queues, err) })
	}
	return err
}

// UntilStop returns a context that ends with life, or grace after the end of stop. If stop has
// ended already, it ends grace after the call. Call release when the context is no longer used.
func UntilStop(life, stop context.Context, grace time.Duration) (_ context.Context, release func()) {
	ctx, cancel := context.WithCancel(life)
	unwatch := context.AfterFunc(stop, func() { time.AfterFunc(grace, cancel) })
	return ctx, func() {
		unwatch()
		cancel()
	}
}

// Unknown returns the error of a task without a handler, which wraps [task.ErrUnknownTask]. It says
// which task came to which queue, and names up to three of the handlers that exist.
func Unknown(name, queue string, handlers []string) error {
	has := utf.Cut(strings.Join(handlers[:min(len(handlers), 3)], ", "), 100)
	switch {
	case len(handlers) == 0:
		has = "none"
	case len(handlers) > 3:
		has += fmt.Sprintf(" and %d more", len(handlers)-3)
	}
	return fmt.Errorf("%w: %q came to queue %q, whose consumer has %s; register it there, or send it to the queue of its consumer",
		task.ErrUnknownTask, name, queue, has)
}

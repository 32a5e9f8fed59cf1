package revoke

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/swarmiji/swarmiji/task"
)

// NewLocal returns a List without a bus. It knows only the revocations of [List.Revoke], and loses
// them when the process ends. With more than [DefaultMax] ids it forgets the oldest, with a
// warning. It is ready at once. Default logger: slog.Default().
func NewLocal(logger *slog.Logger) *List {
	if logger == nil {
		logger = slog.Default()
	}
	l := newList(Config{Live: true, Max: DefaultMax, Logger: logger})
	l.begin.Do(func() { close(l.caughtUp) }) // there is nothing to read
	return l
}

// Revoke revokes tasks by their ids. It takes effect in this process at once, and calls the
// watchers. Then it stores the revocation in the bus of the list and blocks until the bus has
// confirmed that. A list without a bus skips that. Without a deadline in ctx it waits for at most
// [DefaultTimeout]. Messages stay in their queues. Without ids it does nothing.
//
// After [task.ErrBadID] and [ErrClosed] nothing has changed. Other errors come from the bus: this
// process knows the revocation, but others may not.
func (l *List) Revoke(ctx context.Context, o Options, ids ...task.ID) error {
	errs := make([]error, 0, len(ids))
	for _, id := range ids {
		errs = append(errs, id.Check())
	}
	l.mu.RLock()
	if l.closed {
		errs = append(errs, ErrClosed)
	}
	l.mu.RUnlock()
	if err := errors.Join(errs...); err != nil || len(ids) == 0 {
		return err
	}
	if o.Until.IsZero() {
		o.Until = time.Now().Add(DefaultUntil)
	}
	vs := revocations(o, ids)
	for i := range vs {
		l.apply(&vs[i])
	}
	if l.cfg.Events == nil {
		return nil
	}
	ctx, cancel := bound(ctx)
	defer cancel()
	r := &Revoker{cfg: RevokerConfig{Events: l.cfg.Events, Live: l.cfg.Live, NodeID: l.cfg.NodeID, Logger: l.cfg.Logger}}
	if err := r.store(ctx, vs); err != nil {
		return fmt.Errorf("revoked only in this process: %w", err)
	}
	return nil
}

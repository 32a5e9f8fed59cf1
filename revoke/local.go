package revoke

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/swarmiji/swarmiji/task"
)

// NewLocal makes a list without a bus. It knows what [List.Revoke] tells it, and forgets all with its process; of more than
// [DefaultMax] ids it forgets the oldest, with a warning. It is ready at once. A nil logger is slog.Default().
func NewLocal(logger *slog.Logger) *List {
	if logger == nil {
		logger = slog.Default()
	}
	l := newList(Config{Live: true, Max: DefaultMax, Logger: logger})
	l.begin.Do(func() { close(l.caughtUp) }) // there is nothing to read
	return l
}

// Revoke revokes tasks by their ids for this process at once, which its watchers are told, and then has the bus of the list
// store it, as [Revoker.Revoke] does. Messages stay where they are.
//
// [task.ErrBadID] and [ErrClosed] leave everything as it was. Any other error is about the bus: this process knows the revocation
// all the same, others may not.
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
		return fmt.Errorf("revoked in this process alone: %w", err)
	}
	return nil
}

package producer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/swarmiji/swarmiji/internal/wire"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/task"
)

// A store deletes a group that waited too long for its members, and sends no notification. The
// futures of the steps behind the group therefore ask: a group that was undecided and no longer
// exists was forgotten.

// awaitedGroup is a group that must be decided before a step.
type awaitedGroup struct {
	id   task.ID
	open time.Time // when it was last seen undecided; zero: never
	over bool      // it was seen decided
}

// awaitGroups stores in w the groups that must be decided before its step. It does nothing without
// a gatherer, or if w has groups already. It takes in.mu.
func (in *inbox) awaitGroups(w *waiter, groups []task.ID) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.gatherer == nil || len(w.groups) > 0 {
		return
	}
	for _, id := range groups {
		w.groups = append(w.groups, awaitedGroup{id: id})
	}
}

// forgottenGroup asks the gatherer for the groups before the step of w, except for those that it
// has seen decided. It returns [task.ErrGroupForgotten] if one of them was undecided at an earlier
// call and no longer exists: the step will never run. Otherwise it returns nil, also if the
// gatherer fails. It stores the states of the groups in w.
//
// Only the polling goroutine calls it. No other code changes the groups of a waiter in the map. It
// takes in.mu, but not during the calls of the gatherer.
func (in *inbox) forgottenGroup(ctx context.Context, w *waiter) error {
	in.mu.Lock()
	groups := w.groups
	in.mu.Unlock()
	for i := range groups {
		g := &groups[i]
		if g.over {
			continue
		}
		known, err := in.gatherer.Group(ctx, g.id)
		switch {
		case err == nil && known.Decider < 0:
			// wall clock: a suspended process must notice the time that has passed
			g.open = time.Now().Round(0)
		case err == nil:
			g.over = true
		case !errors.Is(err, resultstore.ErrNotFound):
			return nil
		// if it were decided, the store would still have it
		case time.Since(g.open) < resultstore.DefaultGatherTTL:
			return fmt.Errorf("%w: group %s", task.ErrGroupForgotten, g.id)
		default:
			g.open = time.Time{}
		}
	}
	return nil
}

// Groups returns the counts of the groups before the step of w. It implements [task.GroupPending].
// It takes in.mu, but not during the calls of the gatherer, whose errors it returns.
func (w *waiter) Groups(ctx context.Context) ([]task.GroupProgress, error) {
	in := w.inbox
	in.mu.Lock()
	counts := make([]task.GroupProgress, len(w.groups))
	for i := range w.groups {
		counts[i].Group = w.groups[i].id
	}
	in.mu.Unlock()
	for i := range counts {
		known, err := wire.LatestGroup(ctx, in.gatherer, &counts[i].Group)
		if errors.Is(err, resultstore.ErrNotFound) { // no member has ended
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("swarmiji: group %s: %w", counts[i].Group, err)
		}
		counts[i].Done, counts[i].Failed, counts[i].Total = known.Done, known.Failed, known.Size
	}
	return counts, nil
}

// fail removes w from the inbox and resolves it with err: its futures return err. It takes in.mu.
func (in *inbox) fail(w *waiter, err error) {
	in.mu.Lock()
	if in.waiters[w.id] == w {
		delete(in.waiters, w.id)
	}
	in.mu.Unlock()
	w.resolve(resultstore.Record{}, err)
}

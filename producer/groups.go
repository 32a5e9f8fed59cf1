package producer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/task"
)

// A store forgets a group that waits for its members in vain, and notifies nobody. So the futures of
// the steps behind the group ask: a group that was undecided and is gone was forgotten.

// awaitedGroup is a group that has to be decided before a step.
type awaitedGroup struct {
	id   task.ID
	open time.Time // when it was last seen undecided; zero: never
	over bool      // it was seen decided
}

// awaitGroups notes the groups that have to be decided before the step of a waiter.
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

// forgotten looks at the groups before a waiter's step, and returns why it will never run, or nil.
// Only sweep calls it, which alone changes the groups of a waiter that is in the map.
func (in *inbox) forgotten(ctx context.Context, w *waiter) error {
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
			g.open = time.Now().Round(0) // a process that was suspended must know it
		case err == nil:
			g.over = true
		case !errors.Is(err, resultstore.ErrNotFound):
			return nil
		case time.Since(g.open) < resultstore.DefaultGatherTTL: // had it been decided it would be there still
			return fmt.Errorf("%w: group %s", task.ErrGroupForgotten, g.id)
		default:
			g.open = time.Time{}
		}
	}
	return nil
}

// fail ends a waiter without a record.
func (in *inbox) fail(w *waiter, err error) {
	in.mu.Lock()
	if in.waiters[w.id] == w {
		delete(in.waiters, w.id)
	}
	in.mu.Unlock()
	w.resolve(resultstore.Record{}, err)
}

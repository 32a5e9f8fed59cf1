package schedule

import (
	"context"
	"sync"
	"time"

	"github.com/swarmiji/swarmiji/capability"
	"github.com/swarmiji/swarmiji/internal/wake"
)

// startRepairs starts a goroutine in wg that calls sweep every Sweep until ctx ends. It does
// nothing if the store is not a [Repairer] or Sweep is negative.
func (r *runner) startRepairs(ctx context.Context, wg *sync.WaitGroup) {
	m, ok := capability.As[Repairer](r.c.Store)
	if !ok || r.c.Sweep < 0 {
		return
	}
	wg.Go(func() {
		seen := map[string]time.Time{}
		for wake.Sleep(ctx, r.c.Sweep) {
			seen = r.sweep(ctx, m, seen)
		}
	})
}

// sweep repairs entries that have had no due time for at least Grace. seen holds, by id, when an
// entry was first found without one. sweep returns the map for the next call; after an error of the
// store that is seen.
func (r *runner) sweep(ctx context.Context, m Repairer, seen map[string]time.Time) map[string]time.Time {
	astray, err := m.Unscheduled(ctx)
	if err != nil {
		return seen
	}
	still := make(map[string]time.Time, len(astray))
	for _, e := range astray {
		since, ok := seen[e.ID]
		if !ok {
			since = time.Now()
		}
		still[e.ID] = since
		if time.Since(since) >= r.c.Grace {
			r.repair(ctx, m, e)
		}
	}
	return still
}

// repair sets the due time of e in the store, and counts and reports the repair. It does nothing if
// this listener cannot read or run the entry, if the entry has no further run, or if the store
// fails.
func (r *runner) repair(ctx context.Context, m Repairer, e Entry) {
	it := item(e)
	if it.Spec == nil {
		return
	}
	if _, err := r.checkRunnable(it.Content); err != nil {
		return
	}
	b, err := r.c.Store.Due(ctx, 0)
	if err != nil {
		return
	}
	next := resumed(it.Spec, b.Now)
	if next.IsZero() {
		return
	}
	if repaired, err := m.Repair(ctx, e.ID, next); err == nil && repaired {
		r.l.stats.repaired.Add(1)
		r.l.report(ProblemRepaired, &Tick{Entry: e}, it.Content.Job, nil)
	}
}

package schedule

import (
	"context"
	"sync"
	"time"

	"github.com/swarmiji/swarmiji/capability"
	"github.com/swarmiji/swarmiji/internal/wake"
)

// startRepairs starts a goroutine in wg that waits for Sweep, calls sweep, and repeats this until
// ctx ends. It starts nothing if the store is not a [Repairer] or Sweep is negative.
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

// sweep searches the store for entries without a due time and calls repair for each that has been
// without one for at least Grace. seen holds, by entry id, when earlier calls first found the
// entry.
//
// It returns the map for the next call, which holds only the entries found now. After an error of
// the store, which it does not log, it returns seen unchanged and repairs nothing.
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

// repair gives e, an entry without a due time, its next due time in the store. If the store did so,
// repair counts and reports it (ProblemRepaired). It blocks until the store answers or ctx ends.
//
// It does nothing if this listener cannot read or run the entry, or if the entry has no further
// run. Errors of the store are ignored; a later sweep tries again.
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

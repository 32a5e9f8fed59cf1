package schedule

import (
	"context"
	"sync"
	"time"

	"github.com/swarmiji/swarmiji/capability"
	"github.com/swarmiji/swarmiji/internal/wake"
)

// mending starts the search for entries that have lost their time, if the store can find them.
func (r *round) mending(ctx context.Context, wg *sync.WaitGroup) {
	m, ok := capability.As[Mender](r.c.Store)
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

// sweep gives times to entries that have been without one for longer than the grace, and returns since when others are.
func (r *round) sweep(ctx context.Context, m Mender, seen map[string]time.Time) map[string]time.Time {
	astray, err := m.Astray(ctx)
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
			r.mend(ctx, m, e)
		}
	}
	return still
}

// mend gives an entry a time. One that this listener could not run is left to others.
func (r *round) mend(ctx context.Context, m Mender, e Entry) {
	it := item(e)
	if it.Spec == nil {
		return
	}
	if _, err := r.able(it.Content); err != nil {
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
	if mended, err := m.Mend(ctx, e.ID, next); err == nil && mended {
		r.l.stats.mended.Add(1)
		r.l.report(ProblemMended, &Tick{Entry: e}, it.Content.Job, nil)
	}
}

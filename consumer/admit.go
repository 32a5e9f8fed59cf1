package consumer

import (
	"context"

	"github.com/swarmiji/swarmiji/internal/guard"
	"github.com/swarmiji/swarmiji/middleware"
)

// admitted asks Config.Admit whether the run may start, and reports whether it may. Otherwise what
// was answered is settled.
func (r *run) admitted() bool {
	c := r.queue.c
	if len(c.cfg.Admit) == 0 {
		return true
	}
	ctx := r.queue.leases.Acquire(c.work, r.lost())
	defer r.queue.leases.Release(r.lost())
	for _, admit := range c.cfg.Admit {
		release, err := askAdmit(ctx, r, admit)
		if err != nil {
			r.releaseAdmissions()
			r.queue.settleAside(r, r.judge(nil, err))
			return false
		}
		if earlier := r.release; earlier != nil && release != nil {
			r.release = func() { release(); earlier() }
		} else if release != nil {
			r.release = release
		}
	}
	return true
}

// askAdmit calls admit, whose panic is its error.
func askAdmit(ctx context.Context, r *run, admit middleware.Admit) (release func(), err error) {
	defer guard.Recover(&err)
	return admit(ctx, &r.request)
}

// releaseAdmissions gives back what Config.Admit has taken for the run, the last first.
func (r *run) releaseAdmissions() {
	if r.release == nil {
		return
	}
	middleware.Guard(r.queue.c.work, r.queue.c.cfg.Logger, "release of an admission", r.release)
	r.release = nil
}

package consumer

import (
	"context"

	"github.com/swarmiji/swarmiji/middleware"
)

// admitted asks Config.Admit whether the run may start, and reports whether it may. Otherwise what they said is settled.
func (r *run) admitted() bool {
	c := r.queue.c
	if len(c.cfg.Admit) == 0 {
		return true
	}
	ctx := r.queue.leases.acquire(c.work, r.lost())
	defer r.queue.leases.release(r.lost())
	for _, admit := range c.cfg.Admit {
		release, err := askAdmit(ctx, r, admit)
		if release != nil {
			r.releases = append(r.releases, release)
		}
		if err != nil {
			r.releaseAdmissions()
			r.queue.settleAside(r, r.judge(nil, err))
			return false
		}
	}
	return true
}

// askAdmit calls admit, whose panic is its error.
func askAdmit(ctx context.Context, r *run, admit middleware.Admit) (release func(), err error) {
	defer func() {
		if p := recover(); p != nil {
			err = middleware.NewPanicError(p)
		}
	}()
	return admit(ctx, &r.request)
}

// releaseAdmissions gives back what Config.Admit has taken for the run, the last first.
func (r *run) releaseAdmissions() {
	for i := len(r.releases) - 1; i >= 0; i-- {
		middleware.Guard(r.queue.c.work, r.queue.c.cfg.Logger, "release of an admission", r.releases[i])
	}
	r.releases = nil
}

package consumer

import (
	"context"

	"github.com/swarmiji/swarmiji/internal/guard"
	"github.com/swarmiji/swarmiji/middleware"
)

// admit calls the functions of Config.Admit in order and reports whether the task may start.
// Without such functions it returns true. It keeps the release functions that they return for
// releaseAdmissions. Their context ends at a hard stop, or when the broker takes the task back.
//
// If one of them returns an error or panics, admit calls no further ones, releases the earlier
// admissions, and returns false. Another goroutine settles the task as if its handler had returned
// that error.
func (r *run) admit() bool {
	c := r.queue.c
	if len(c.cfg.Admit) == 0 {
		return true
	}
	ctx := r.queue.leases.Acquire(c.work, r.lost())
	defer r.queue.leases.Release(r.lost())
	for _, admit := range c.cfg.Admit {
		release, err := callAdmit(ctx, r, admit)
		if err != nil {
			r.releaseAdmissions()
			r.queue.settleAsync(r, r.judge(nil, err))
			return false
		}
		if earlier := r.releaseAdmitted; earlier != nil && release != nil {
			r.releaseAdmitted = func() { defer earlier(); release() } // also if release does not return
		} else if release != nil {
			r.releaseAdmitted = release
		}
	}
	return true
}

// callAdmit calls admit for the request of r and returns its results. A panic in admit is returned
// as a [*task.PanicError].
func callAdmit(ctx context.Context, r *run, admit middleware.Admit) (release func(), err error) {
	defer guard.Recover(&err)
	return admit(ctx, &r.request)
}

// releaseAdmissions calls the release functions that Config.Admit returned for this task, the last
// one first. If one panics, that is logged, and the remaining ones are called nevertheless. A
// second call does nothing.
func (r *run) releaseAdmissions() {
	if r.releaseAdmitted == nil {
		return
	}
	middleware.Guard(r.queue.c.work, r.queue.c.cfg.Logger, "release of an admission", r.releaseAdmitted)
	r.releaseAdmitted = nil
}

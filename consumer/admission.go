package consumer

// admit calls the functions of Config.Admit in order and reports whether the task may start.
// Without such functions it returns true. releaseAdmissions calls the release functions that they
// return. Their context ends at a hard stop, or when the broker takes the task back.
//
// If one of them returns an error or panics, admit releases the earlier admissions and returns
// false. Another goroutine settles the task as if its handler had returned that error.
func (r *run) admit() bool {
	c := r.queue.c
	if len(c.cfg.Admit) == 0 {
		return true
	}
	ctx := r.queue.leases.Acquire(c.work, r.lost())
	defer r.queue.leases.Release(r.lost())
	if err := r.admissions.Ask(ctx, &r.request, c.cfg.Admit); err != nil {
		r.releaseAdmissions()
		r.queue.settleAsync(r, r.judge(nil, err))
		return false
	}
	return true
}

// releaseAdmissions calls the release functions that Config.Admit returned for this task. A second
// call does nothing.
func (r *run) releaseAdmissions() {
	r.admissions.Release(r.queue.c.work, r.queue.c.cfg.Logger)
}

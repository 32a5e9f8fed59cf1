package consumer

import (
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/guard"
	"github.com/swarmiji/swarmiji/task"
)

// execute starts a task when its rate lets it, on the goroutine of the worker that took it. One
// that has to wait is set aside.
func (q *queue) execute(r *run) {
	if q.admit(r) {
		q.start(r)
	}
}

// start runs a task in the pool, when the team has room for it.
func (q *queue) start(r *run) {
	if !r.idempotent() && !q.reserveEarly(r) {
		r.unstarted()
		return
	}
	if !q.team.slots.TryAcquire() && !q.awaitSlot(r) {
		r.unstarted()
		return
	}
	defer q.team.slots.Release()
	pool := q.c.cfg.Pool
	if pool == nil {
		q.perform(r)
		return
	}
	q.performIn(pool, r)
}

// perform runs the handler on this goroutine. What follows a run, its settlement, goes on without
// the worker.
func (q *queue) perform(r *run) {
	c := q.c
	if r.suspect {
		end, ok := c.isolate(r)
		if !ok {
			r.unstarted()
			return
		}
		defer end()
	}
	if !c.enter(r) {
		r.unstarted()
		return
	}
	if !q.takes() { // paused, or stopped, while it waited: a run that comes later than the registry's look is not one
		c.running.Remove(r, r.worker)
		r.unstarted()
		return
	}
	if r.revoked() || !r.admitted() {
		c.running.Remove(r, r.worker)
		return
	}
	if start, later := r.committed(); !start {
		r.releaseAdmissions()
		c.running.Remove(r, r.worker)
		if later != nil {
			c.settling.Go(later)
		}
		return
	}
	ctx := r.cuttable(q.leases.Acquire(c.work, r.lost()))
	r.request.StartedAt = time.Now()
	r.started.Store(true)
	c.cfg.Metrics.Started.Inc(1)
	c.cfg.Metrics.Active.Inc(1)
	r.notifyStarted()
	returned := false
	defer func() {
		if !returned { // the handler ended its goroutine with runtime.Goexit, which nothing can recover
			q.finish(r, nil, guard.ErrGoexit)
		}
	}()
	if c.answers != nil {
		ctx = task.WithExpecter(ctx, r)
	}
	result, err := r.handler.Handle(task.WithRequest(ctx, &r.request), &r.request)
	returned = true
	q.finish(r, result, err)
}

// committed does the last thing before a start, and reports whether the run may start: a task that
// runs at most once is acknowledged, the start of one that was handed out before is noted. If not,
// the run has been dealt with, or later goes on with it.
func (r *run) committed() (start bool, later func()) {
	if r.idempotent() {
		return r.noteStart()
	}
	return r.ackEarly() && !r.revokedLate(), nil
}

// finish takes what a handler returned to its settlement.
func (q *queue) finish(r *run, result any, err error) {
	r.ended = time.Now()
	r.over.Store(true)
	r.releaseAdmissions()
	q.c.running.End(r, r.worker)
	q.c.cfg.Metrics.Active.Dec(1)
	q.c.cfg.Metrics.Runtime.Update(r.ended.Sub(r.request.StartedAt).Microseconds())
	r.uncut()
	q.leases.Release(r.lost())
	if r.suspect { // before the next task starts: if that ends the process, this acknowledgement may be lost
		r.clearNote(q.c.settle)
	}
	v := r.unlessRevoked(r.judge(result, err), err)
	if r.quick(v) {
		q.settle(r, v)
		return
	}
	q.settleAside(r, v)
}

// settleAside settles on a goroutine of its own. How many there are is bounded by the prefetch:
// what is not settled is still held.
func (q *queue) settleAside(r *run, v verdict) {
	q.c.settling.Go(func() { q.settle(r, v) })
}

// lost is closed when the broker takes the task back; nil, which never is, once it was
// acknowledged.
func (r *run) lost() <-chan struct{} {
	if r.acked.Load() {
		return nil
	}
	return r.delivery.Lost()
}

// isLost reports whether the broker has taken the task back.
func (r *run) isLost() bool { return !r.acked.Load() && isLost(r.delivery) }

func isLost(d broker.Delivery) bool {
	select {
	case <-d.Lost():
		return true
	default:
		return false
	}
}

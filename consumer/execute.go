package consumer

import (
	"time"

	"github.com/swarmiji/swarmiji/consumer/internal/intake"
	"github.com/swarmiji/swarmiji/internal/guard"
	"github.com/swarmiji/swarmiji/task"
)

// execute starts a task on the calling goroutine if its rate limit allows it now, and returns after
// the handler. Otherwise it returns at once or, without room to set the task aside, within a
// second. The rate limiter then starts the task later, puts it back or gives it back; do not use r
// any more.
func (q *queue) execute(r *run) {
	if q.rateAllows(r) {
		q.start(r)
	}
}

// start waits for a free slot of the queue's workers and runs the task, in Config.Pool or on the
// calling goroutine. It returns after the handler and frees the slot. A task that runs at most once
// first takes an early slot, see acquireEarlySlot; its settlement frees that one.
//
// If the consumer stops, the queue is paused or the broker takes the task back while start waits,
// the handler does not run. start then calls giveBackUnstarted, which gives the task back on
// another goroutine, and returns. It does the same if the pool refuses the task.
func (q *queue) start(r *run) {
	if !r.idempotent() && !q.acquireEarlySlot(r) {
		r.giveBackUnstarted()
		return
	}
	if !q.workers.Slots.TryAcquire() && !q.awaitSlot(r) {
		r.giveBackUnstarted()
		return
	}
	defer q.workers.Slots.Release()
	pool := q.c.cfg.Pool
	if pool == nil {
		q.perform(r)
		return
	}
	q.performInPool(pool, r)
}

// perform runs the handler of the task on the calling goroutine and returns after the handler. Call
// it with a slot of q.workers taken. It counts the start, sends the event, and then calls finish,
// also if the handler calls runtime.Goexit.
//
// Before the handler a suspect (a task whose earlier start has ended its process) waits until it
// can run alone. Any other task waits while a suspect runs alone.
//
// perform returns without a call of the handler, and another goroutine settles the task or gives it
// back, if one of these holds:
//
//   - The queue is paused, the consumer stops, or the broker has taken the task back.
//   - The task is or may be revoked (settleIfRevoked), its name is paused (moveIfPaused), or
//     Config.Admit refuses it.
//   - begin refuses the start.
func (q *queue) perform(r *run) {
	c := q.c
	leave, ok := c.crashes.Enter(crashRun{r})
	if !ok {
		r.giveBackUnstarted()
		return
	}
	defer leave()
	// The queue was paused or the consumer stopped. A task that is added to running after that must
	// not start.
	if !q.accepts() {
		c.running.Remove(r, int(r.worker))
		r.giveBackUnstarted()
		return
	}
	if r.settleIfRevoked() || r.moveIfPaused() || !r.admit() {
		c.running.Remove(r, int(r.worker))
		return
	}
	if start, later := q.begin(r); !start {
		r.releaseAdmissions()
		c.running.Remove(r, int(r.worker))
		if later != nil {
			q.settling.Go(later)
		}
		return
	}
	r.request.Quarantined = r.crash.Suspect()
	ctx := r.revocableContext(q.leases.Acquire(c.work, r.lost()))
	c.cfg.Metrics.Started.Inc(1)
	c.cfg.Metrics.Active.Inc(1)
	r.notifyStarted()
	returned := false
	defer func() {
		if !returned { // the handler called runtime.Goexit, which cannot be recovered
			q.finish(r, nil, guard.ErrGoexit)
		}
	}()
	if c.answers != nil {
		ctx = task.WithExpecter(ctx, r)
	}
	if r.acked.Load() {
		defer c.bursts.Renew(c.settle, &r.request)()
	}
	result, err := r.handler.Handle(task.WithRequest(ctx, &r.request), &r.request)
	returned = true
	q.finish(r, result, err)
}

// begin calls commitStart and marks the run as started. Its results are those of commitStart. A
// forced stop waits for begin of a task that runs at most once. If the settlements have ended by
// then, begin gives the task back or, if it is acknowledged, settles it as uncertain.
func (q *queue) begin(r *run) (start bool, later func()) {
	c := q.c
	if !r.idempotent() {
		q.settling.Hold()
		defer q.settling.Release()
		if c.settle.Err() != nil { // the stop may wait no longer
			r.giveBackUnstarted()
			return false, nil
		}
	}
	if start, later = r.commitStart(); !start {
		return false, later
	}
	r.request.StartedAt = time.Now()
	r.started.Store(true)
	if r.acked.Load() && c.settle.Err() != nil { // releaseRunning may have looked before
		q.settling.Go(r.settleUncertain)
		return false, nil
	}
	return true, nil
}

// commitStart is the last step before the handler. It acknowledges a task that runs at most once
// (ackEarly). For other redelivered tasks it notes the start with the broker, see
// [crashes.Watch.Note]. Then it checks again whether the task is revoked, since these steps and the
// admission take time.
//
// start reports whether the handler may run. If start is false and later is not nil, call later on
// another goroutine: it continues with the task. If later is nil, another goroutine settles the
// task or gives it back.
func (r *run) commitStart() (start bool, later func()) {
	switch {
	case !r.idempotent():
		if !r.queue.c.bursts.Hold(settlement{r}, &r.request) {
			r.releaseEarlySlot()
			return false, nil
		}
		if !r.ackEarly() {
			return false, nil
		}
	case r.request.Deliveries > 1:
		if start, later = r.queue.c.crashes.Note(crashRun{r}); !start {
			return false, later
		}
	}
	return !r.settleIfKnownRevoked(), nil
}

// finish ends a run after its handler has returned: it sets r.ended and r.returned, releases the
// admissions and calls conclude, also if a release calls runtime.Goexit. result and err decide the
// settlement. A stop waits for finish.
func (q *queue) finish(r *run, result any, err error) {
	q.settling.Hold() // a stop waits from here on: after running.End it does not find this run
	defer q.settling.Release()
	r.ended = time.Now()
	r.returned.Store(true)
	r.endProgress()
	r.checkpoints.End()
	defer q.conclude(r, result, err)
	r.releaseAdmissions()
}

// conclude removes a run from the running tasks, releases its context, updates the metrics, and
// settles the task. result and err of the handler decide the settlement; a revocation of the task
// may override them. It settles on another goroutine, unless the settlement is only an
// acknowledgement. Before the settlement it clears a suspect's note of the start, and waits for the
// broker. After SettleTx it calls settleAfterTx.
func (q *queue) conclude(r *run, result any, err error) {
	q.c.running.End(r, int(r.worker))
	q.c.cfg.Metrics.Active.Dec(1)
	q.c.cfg.Metrics.ObserveRun(&r.request, r.ended)
	r.releaseContext()
	q.leases.Release(r.lost())
	// before the next task starts: if that task ends the process, the acknowledgement of this one
	// may be lost
	if r.crash.Suspect() {
		q.c.crashes.Clear(q.c.settle, crashRun{r})
	}
	if end := r.inTx.Close(); end != nil {
		q.settling.Go(func() { q.settleAfterTx(r, end, result, err) })
		return
	}
	v := r.applyRevocation(r.judge(result, err), err)
	r.countForBreakers(v)
	if !q.settlePlain(r, v) {
		q.settleAsync(r, v)
	}
}

// settleAsync settles the task by v on a goroutine of q.settling. The prefetch limits the number of
// these goroutines, since an unsettled task still counts as held.
func (q *queue) settleAsync(r *run, v verdict) {
	q.settling.Go(func() { q.settle(r, v) })
}

// lost returns a channel that is closed when the broker takes the task back. It returns nil for an
// acknowledged task, which the broker cannot take back: receiving from it blocks for ever.
func (r *run) lost() <-chan struct{} {
	if r.acked.Load() {
		return nil
	}
	return r.delivery.Lost()
}

// isLost reports whether the broker has taken the task back.
func (r *run) isLost() bool { return !r.acked.Load() && intake.Lost(r.delivery) }

package queue

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/swarmiji/swarmiji/internal/guard"
	"github.com/swarmiji/swarmiji/jobs/internal/line"
	"github.com/swarmiji/swarmiji/jobs/internal/rules"
	"github.com/swarmiji/swarmiji/jobs/internal/txn"
	"github.com/swarmiji/swarmiji/jobs/jobstore"
	"github.com/swarmiji/swarmiji/task"
)

const (
	// mostMoved limits the number of jobs that one admission moves to the start of their windows.
	mostMoved = 2000
	// scanTime is the duration above which a search counts as slow. A slow search that found no job
	// light enough is not repeated for slowScanFactor times its duration.
	scanTime       = time.Millisecond
	slowScanFactor = 100
)

// admitTx is one try of the transaction in which the leader claims jobs of its queue. It claims due
// running jobs first, then QUEUED jobs that may start.
type admitTx struct {
	*txn.Step
	l     *Leader
	slots int // jobs that the runner can still receive
	// saves contains all changed jobs. The claimed ones come first, in the order of out.
	saves []*jobstore.Row
	// out contains the claimed jobs. run sets their Row after the save.
	out   []jobstore.Handout
	again bool // another admission at once may find more jobs
	// moved counts the QUEUED jobs whose start was postponed.
	moved int

	version  int64 // new QueueLease.Admissions, for the roster; 0: unchanged
	outdated bool  // the plan was made before the last admission was known

	unread []unreadWindow // jobs that are held because their windows cannot be parsed

	missing bool                   // the lock of a key is missing
	keys    map[string]jobstore.ID // keys of the jobs that this admission started, by KeyDigest
}

// unreadWindow is a job that is held because its windows cannot be parsed.
type unreadWindow struct {
	job *jobstore.Row
	err error
}

// runAdmission claims up to slots jobs in a transaction and returns them: running jobs that are
// due, and QUEUED jobs that may start. If the queue has a throttler, it asks the throttler first
// (plan), and runs no transaction if the plan is idle. again reports that another admission at once
// may find more jobs. Returns ErrStale if another leader has the lease; nothing is claimed then.
// Returns errors of the store; after ErrUnavailable jobs may be claimed nevertheless.
//
// It calls Host.Taken, sets l.admittedAt and the Status, and updates the roster. Jobs whose windows
// cannot be parsed go to LeaderConfig.Held. Only the goroutine of Next calls it.
func (l *Leader) runAdmission(ctx context.Context, slots int) (out []jobstore.Handout, again bool, err error) {
	token := l.Fence()
	var plan *Admission
	if l.q.Throttler != nil {
		var idle bool
		if plan, idle, err = l.plan(ctx, slots); err != nil || idle {
			return nil, plan != nil && plan.partial, err
		}
	}
	var lk txn.Locks
	var t *admitTx
	err = txn.Do(ctx, l.store, &lk, func(ctx context.Context, st *txn.Step) error {
		t = &admitTx{Step: st, l: l, slots: slots}
		return t.run(ctx, token, plan)
	})
	if plan != nil {
		l.settleRoster(t, err)
	}
	if err != nil {
		return nil, false, err
	}
	l.host.Taken(len(t.out))
	l.admittedAt = t.Now
	for _, u := range t.unread {
		l.c.Held(u.job, u.err)
	}
	if plan == nil {
		l.setStatus(t.Now, t.slots <= 0, nil)
	}
	return t.out, t.again, nil
}

// settleRoster updates the roster (the leader's list of running jobs) after a transaction with a
// plan. It adds the jobs that t started and the new number of admissions. If err is not nil or the
// plan was outdated, it drops the roster: the next admission reads it again.
func (l *Leader) settleRoster(t *admitTx, err error) {
	if err != nil || t.outdated {
		l.roster = nil
		return
	}
	l.roster.settle(t.out)
	if t.version != 0 {
		l.roster.version = t.version
	}
}

// run is the body of the transaction. It claims running jobs that are due, and starts jobs by the
// plan of the throttler, or by the limit if plan is nil. It saves all changed jobs. If the plan
// starts jobs, it counts the admission in the lease record.
//
// It only claims running jobs, and sets t.again, if these take all slots, or if the plan is
// outdated: its roster lacks a due running job or an admission. The latter also sets t.outdated.
//
// Returns ErrStale if another leader has the lease. Returns ErrLocks if the lock of a key is
// missing: txn.Do then repeats the transaction. Returns errors of the store.
func (t *admitTx) run(ctx context.Context, token int64, plan *Admission) error {
	rec, err := t.l.lockLease(ctx, t.Step, token)
	if err != nil {
		return err
	}
	if err := t.resumeRuns(ctx); err != nil {
		return err
	}
	t.outdated = plan != nil && !plan.running.contains(t.out)
	switch {
	case t.slots <= 0, t.outdated: // the roster lacks a job that an answer has made due
		t.again = true
	// an admission with an unknown result was committed
	case plan != nil && plan.running.version != rec.Admissions:
		t.again, t.outdated = true, true
	case plan != nil:
		if err = t.applyPlan(ctx, plan); err == nil && len(plan.starts) > 0 {
			rec.Admissions++
			t.version = rec.Admissions
			err = t.Tx.SaveQueueLease(ctx, rec)
		}
	default:
		err = t.admit(ctx)
	}
	if err == nil && t.missing {
		err = txn.ErrLocks
	}
	if err != nil || len(t.saves) == 0 {
		return err
	}
	if err := t.Save(ctx, t.saves...); err != nil {
		return err
	}
	for i := range t.out {
		t.out[i].Row = *t.saves[i]
	}
	return nil
}

// resumeRuns claims at most t.slots running jobs that are due: their lease has ended, their answer
// has come, or their deadline has passed. A due job that must still wait for its answer is not
// claimed, only saved with its later Due. With LeaderConfig.NoDeadlines it clears Phase and
// Deadline of unanswered jobs first. run saves the jobs. Returns errors of the store.
func (t *admitTx) resumeRuns(ctx context.Context) error {
	found, err := t.Tx.Line(ctx, jobstore.Line{Queue: t.l.q.Name, State: jobstore.Running, By: t.Now}, t.slots)
	if err != nil {
		return err
	}
	var rest []*jobstore.Row // saved after the claimed jobs
	for i := range found {
		j := &found[i]
		// the deadline comes from a runner without Submit, or from an older version
		if t.l.c.NoDeadlines && j.Phase != jobstore.Answered {
			j.Phase, j.Deadline = "", time.Time{}
		}
		if !rules.Redeliver(j, t.Now, t.l.lease) {
			rest = append(rest, j)
			continue
		}
		t.claim(j, jobstore.Before{State: jobstore.Running, NextRun: j.NextRun})
	}
	t.saves = append(t.saves, rest...)
	return nil
}

// claim appends j to the claimed jobs t.out and reduces t.slots, the number of jobs that the runner
// can still receive. was has the state and NextRun that GiveBack restores. run saves j.
func (t *admitTx) claim(j *jobstore.Row, was jobstore.Before) {
	t.saves = slices.Insert(t.saves, len(t.out), j)
	t.out = append(t.out, jobstore.Handout{Before: was, Asked: t.Asked})
	t.slots--
}

// admit starts due QUEUED jobs in the order of the queue, as long as the limit admits them and
// slots are free. It skips a job that does not fit; with Queue.Strict it stops there. It postpones
// a job whose window is closed to the next opening.
//
// It sets t.again if the slots are used up or mostMoved jobs were postponed. Slow searches may be
// skipped: see pace.skipSlowSearches. Returns errors of the store.
func (t *admitTx) admit(ctx context.Context) error {
	g := line.Gauge{Limit: t.l.q.limit(), Strict: t.l.q.Strict}
	if g.Limit > 0 {
		_, weight, err := line.Weigh(ctx, t.Tx, t.l.q.Name)
		if err != nil {
			return err
		}
		g.Taken = weight
	}
	ln := line.Line{Queue: t.l.q.Name, Order: t.l.q.Order, By: t.Now, Find: t.l.pace.skipSlowSearches(t.Tx.Line)}
	var failed error
	err := ln.Each(ctx, g.Most, func() int { return t.slots }, func(j *jobstore.Row) bool {
		if at, err := t.l.windows.Opens(j, t.Now); at.After(t.Now) {
			t.postpone(j, at, err)
			return t.moved < mostMoved
		}
		if g.Start(j.Weight) {
			failed = t.start(ctx, j)
		}
		return failed == nil && !g.Blocked && t.slots > 0
	})
	t.again = t.slots <= 0 || t.moved >= mostMoved
	if failed != nil {
		return failed
	}
	return err
}

// postpone sets NextRun of a QUEUED job to the time at and counts it in t.moved. unread, if not
// nil, is the error of parsing its windows; it is reported after the commit. run saves the job.
func (t *admitTx) postpone(j *jobstore.Row, at time.Time, unread error) {
	j.NextRun = at
	if unread != nil {
		t.unread = append(t.unread, unreadWindow{j, unread})
	}
	t.saves = append(t.saves, j)
	t.moved++
}

// start changes j to RUNNING for a new attempt and claims it. It sets Token, Deadline, Due and the
// counters, and clears Phase, Reason and Answer. LeaderConfig.Begin may set a new key.
//
// If Begin fails or another job or task has the new key, j is claimed nevertheless: Handout.Refused
// contains the error, and the old key stays. Returns only errors of the store. run saves j.
func (t *admitTx) start(ctx context.Context, j *jobstore.Row) error {
	was := jobstore.Before{State: jobstore.Queued, NextRun: j.NextRun}
	key := j.Key
	j.State, j.Phase, j.Reason, j.Answer = jobstore.Running, "", "", nil
	// NextRun of a later attempt is not the time at which the run was due
	if j.Attempt == 0 || j.Scheduled.IsZero() {
		j.Scheduled = j.NextRun
	}
	j.LastRun = t.Now
	j.Run++
	j.Token++
	j.Attempt++
	j.Deadline = time.Time{}
	if j.Timeout > 0 && !t.l.c.NoDeadlines {
		j.Deadline = rules.Micros(t.Now.Add(j.Timeout))
	}
	j.Due = rules.UntilDeadline(j, rules.Micros(t.Now.Add(t.l.lease)))
	refused := t.l.prepare(j)
	if refused == nil && j.Key != key && j.Key != "" {
		var err error
		if refused, err = t.takeKey(ctx, j); err != nil {
			return err
		}
	}
	if refused != nil {
		j.Key = key
	}
	t.claim(j, was)
	t.out[len(t.out)-1].Refused = refused
	return nil
}

// takeKey checks that the new key of j is free and reserves it in this transaction. refused is a
// KeyTakenError if another job or task has it, or an earlier job of the transaction; err is of the
// store. If this or an earlier lock of a key is missing, it sets t.missing and returns nil; the
// transaction then starts again with the locks.
func (t *admitTx) takeKey(ctx context.Context, j *jobstore.Row) (refused, err error) {
	t.missing = t.Locks.AddKey(j.Name, j.Key) != nil || t.missing
	if t.missing { // the transaction starts again after all missing locks are noted
		return nil, nil
	}
	lock := jobstore.KeyDigest(j.Name, j.Key)
	if other, taken := t.keys[lock]; taken {
		return &jobstore.KeyTakenError{Key: j.Key, Job: other}, nil
	}
	err = t.Free(ctx, j)
	if errors.Is(err, jobstore.ErrKeyTaken) {
		return err, nil
	}
	if t.keys == nil {
		t.keys = map[string]jobstore.ID{}
	}
	t.keys[lock] = j.ID
	return nil, err
}

// prepare calls LeaderConfig.Begin, which sets Key and Respond of j, and returns its error. A panic
// of Begin becomes an error. Returns nil without a Begin.
func (l *Leader) prepare(j *jobstore.Row) (err error) {
	if l.c.Begin == nil {
		return nil
	}
	defer guard.Recover(&err)
	return l.c.Begin(j)
}

// applyPlan starts the jobs that the throttler has chosen, while slots are free, and postpones
// others. It skips a job whose state, queue, token or weight has changed since the plan, or whose
// Due is after now. It sets t.again if another admission at once may find more jobs.
//
// A postponed job waits for the first opening of its window after the chosen time. If its windows
// cannot be parsed, it waits until the chosen time and is in t.unread. Returns errors of the store.
func (t *admitTx) applyPlan(ctx context.Context, plan *Admission) error {
	ids := slices.Concat(plan.starts, plan.later)
	jobs := make(map[jobstore.ID]*jobstore.Row, len(ids))
	for part := range slices.Chunk(slices.Sorted(slices.Values(ids)), line.RosterPage) {
		found, err := t.Tx.Jobs(ctx, part...)
		if err != nil {
			return err
		}
		for i := range found {
			j := &found[i]
			o := plan.offered[j.ID]
			if j.State == jobstore.Queued && j.Queue == t.l.q.Name && j.Token == o.token && j.Weight == o.weight && !j.Due.After(t.Now) {
				jobs[j.ID] = j
			}
		}
	}
	for _, id := range plan.starts {
		if j := jobs[id]; j != nil && t.slots > 0 {
			if err := t.start(ctx, j); err != nil {
				return err
			}
		}
	}
	for _, id := range plan.later {
		if j := jobs[id]; j != nil {
			o := plan.offered[id]
			at, err := t.l.windows.Opens(j, o.later)
			if err != nil { // the windows cannot be parsed: hold the job until later
				at = o.later
			}
			t.postpone(j, at, err)
		}
	}
	t.again = t.slots <= 0 || len(plan.later) >= mostMoved || plan.partial
	return nil
}

// plan reads the queue, updates the roster, and calls the throttler with at most slots free
// workers. The plan names jobs to start and to postpone; applyPlan executes it. No transaction is
// open while the throttler works. It sets l.admittedAt and the Status.
//
// idle reports that the plan neither starts nor postpones a job, and that no running job is due.
// plan is nil only with an error, which is an error of the store. An error of the throttler is
// reported; the plan then starts no job.
func (l *Leader) plan(ctx context.Context, slots int) (plan *Admission, idle bool, err error) {
	adm := &Admission{queue: l.q, slots: slots, gauge: line.Gauge{Limit: l.q.limit(), Strict: l.q.Strict}, opens: l.windows.Opens, offered: map[jobstore.ID]*offer{}}
	var running, version int64
	due := false
	err = l.store.View(ctx, func(ctx context.Context, tx jobstore.Tx) (err error) {
		if adm.now, err = tx.Now(ctx); err != nil {
			return err
		}
		rec, err := tx.QueueLease(ctx, l.q.Name) // read first, so that a later admission is noticed
		if err != nil {
			return err
		}
		if version = 0; rec != nil {
			version = rec.Admissions
		}
		found, err := tx.Line(ctx, jobstore.Line{Queue: l.q.Name, State: jobstore.Running, By: adm.now}, 1)
		if err != nil {
			return err
		}
		due = len(found) > 0
		running, adm.gauge.Taken, err = line.Weigh(ctx, tx, l.q.Name)
		return err
	})
	if err != nil {
		return nil, false, err
	}
	if err := l.readRoster(ctx, int(running), version); err != nil {
		return nil, false, err
	}
	adm.running = l.roster
	adm.line = line.Line{Queue: l.q.Name, Order: l.q.Order, By: adm.now, Find: l.pace.skipSlowSearches(l.readLine)}
	began := time.Now()
	adm.mayEndEarly = l.pace.mayEndEarly(began, l.signal)
	if err := l.callThrottler(ctx, adm); err != nil {
		return nil, false, err
	}
	if !adm.partial {
		l.pace.whole, l.pace.wholeAt = time.Since(began), time.Now()
	}
	l.admittedAt = adm.now
	l.setStatus(adm.now, adm.slots <= 0, adm.refused())
	return adm, !due && len(adm.starts) == 0 && len(adm.later) == 0, nil
}

// view calls read in a read transaction of its own and returns the jobs that read returned. After
// an error it returns no jobs.
func (l *Leader) view(ctx context.Context, read func(ctx context.Context, tx jobstore.Tx) ([]jobstore.Row, error)) (found []jobstore.Row, err error) {
	err = l.store.View(ctx, func(ctx context.Context, tx jobstore.Tx) (err error) {
		found, err = read(ctx, tx)
		return err
	})
	if err != nil {
		return nil, err
	}
	return found, nil
}

// readLine reads one page of at most limit jobs, in a transaction of its own, as line.Line.Find.
func (l *Leader) readLine(ctx context.Context, q jobstore.Line, limit int) ([]jobstore.Row, error) {
	return l.view(ctx, func(ctx context.Context, tx jobstore.Tx) ([]jobstore.Row, error) { return tx.Line(ctx, q, limit) })
}

// readRoster brings l.roster up to date for a plan. running and version are the present numbers of
// running jobs and of admissions in the store. It reads the roster again if an admission is
// unknown, a running job is missing, or it is older than rosterAge; after an error l.roster is then
// nil. Otherwise it removes ended jobs; pace.stale reports that some remain.
func (l *Leader) readRoster(ctx context.Context, running int, version int64) (err error) {
	if l.roster != nil && l.roster.version == version && len(l.roster.all) >= running && time.Since(l.roster.read) < rosterAge {
		l.pace.stale, err = l.roster.sync(ctx, l, running)
		return err
	}
	before := l.roster
	if l.roster, err = l.readRunning(ctx); err != nil {
		l.roster = nil
		return err
	}
	l.roster.version = version
	l.pace.stale = false
	l.roster.inherit(before)
	return nil
}

// inherit copies the shares of jobs (see [Shares]) from the roster before into r, if the job is
// still in the same run. before may be nil.
func (r *roster) inherit(before *roster) {
	if before == nil {
		return
	}
	known := make(map[jobstore.ID]*entry, len(before.all))
	for _, e := range before.all {
		known[e.job.ID] = e
	}
	for _, e := range r.all {
		if k := known[e.job.ID]; k != nil && k.job.Run == e.job.Run {
			e.by, e.share = k.by, k.share
		}
	}
}

// callThrottler calls Throttler.Admit in another goroutine and waits until it returns, without a
// limit. Its context ends after half of the lease. After the return adm.over makes further calls of
// adm ineffective.
//
// If the throttler returns an error, panics or calls runtime.Goexit, its decisions are dropped.
// Only moves to the opening of a window stay. The error goes to LeaderConfig.Report, unless ctx has
// ended. Returns only errors of the store (adm.err). Each error also empties begun of the roster.
func (l *Leader) callThrottler(ctx context.Context, adm *Admission) error {
	bounded, cancel := context.WithTimeout(ctx, l.lease/2)
	defer cancel()
	adm.ctx = ctx
	err := fmt.Errorf("%w: the throttler ended its goroutine", task.ErrPanic)
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer guard.Recover(&err)
		err = l.q.Throttler.Admit(bounded, adm)
	}()
	<-done
	adm.over = true
	if adm.err != nil {
		adm.running.begun = nil
		return adm.err
	}
	if err == nil {
		return nil
	}
	adm.starts, adm.running.begun = nil, nil
	moved := adm.later[:0]
	for _, id := range adm.later { // moves to the opening of a window stay
		if adm.offered[id].window {
			moved = append(moved, id)
		}
	}
	adm.later = moved
	for o := range maps.Values(adm.offered) {
		o.start = false
	}
	if ctx.Err() == nil {
		l.c.Report(fmt.Errorf("jobs: the throttler of queue %q: %w", l.q.Name, err))
	}
	return nil
}

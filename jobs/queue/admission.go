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
	// mostMoved is how many jobs one look moves to the start of their windows.
	mostMoved = 2000
	// scanTime is the duration from which a search counts as slow. A slow search that found no job
	// light enough is not repeated for calm times its duration.
	scanTime = time.Millisecond
	calm     = 100
)

// admission is the transaction of one look.
type admission struct {
	*txn.Step
	l     *Leader
	room  int // how many more jobs the runner has room for
	saves []*jobstore.Row
	out   []jobstore.Handout
	again bool // another look at once may find more
	moved int

	version  int64 // the new QueueLease.Admissions, for the roster; 0: unchanged
	outdated bool  // the plan was made before the last admission was known

	unread []unreadWindow // jobs that are held until their windows can be read

	missing bool                   // a lock of a key is missing
	keys    map[string]jobstore.ID // keys of jobs that this look has started, by KeyDigest
}

// unreadWindow is a job that is held because its windows cannot be read.
type unreadWindow struct {
	job *jobstore.Row
	err error
}

// look reads the queue once and claims up to room jobs. again reports that another look at once may
// find more.
func (l *Leader) look(ctx context.Context, room int) (out []jobstore.Handout, again bool, err error) {
	token := l.Fence()
	var plan *Look
	if l.q.Throttler != nil {
		var idle bool
		if plan, idle, err = l.plan(ctx, room); err != nil || idle {
			return nil, plan != nil && plan.partial, err
		}
	}
	var lk txn.Locks
	var t *admission
	err = txn.Do(ctx, l.store, &lk, func(ctx context.Context, st *txn.Step) error {
		t = &admission{Step: st, l: l, room: room}
		return t.run(ctx, token, plan)
	})
	if plan != nil {
		l.settleRoster(t, err)
	}
	if err != nil {
		return nil, false, err
	}
	l.host.Taken(len(t.out))
	l.looked = t.Now
	for _, u := range t.unread {
		l.c.Held(u.job, u.err)
	}
	if plan == nil {
		l.note(t.Now, t.room <= 0, nil)
	}
	return t.out, t.again, nil
}

// settleRoster enters the started jobs in the roster. After an error it drops the roster, since the
// outcome is unknown.
func (l *Leader) settleRoster(t *admission, err error) {
	if err != nil || t.outdated {
		l.roster = nil
		return
	}
	l.roster.settle(t.out)
	if t.version != 0 {
		l.roster.version = t.version
	}
}

// run is the body of the transaction: due attempts are redelivered first, then jobs are admitted.
//
// Returns ErrStale if another leader has the lease.
func (t *admission) run(ctx context.Context, token int64, plan *Look) error {
	rec, err := t.l.own(ctx, t.Step, token)
	if err != nil {
		return err
	}
	if err := t.resumeRuns(ctx); err != nil {
		return err
	}
	t.outdated = plan != nil && !plan.running.has(t.out)
	switch {
	case t.room <= 0, t.outdated: // the roster lacks a job that an answer has resumed
		t.again = true
	case plan != nil && plan.running.version != rec.Admissions: // an admission of unknown outcome was committed
		t.again, t.outdated = true, true
	case plan != nil:
		if err = t.carryOut(ctx, plan); err == nil && len(plan.starts) > 0 {
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

// resumeRuns claims the running jobs that are due: their lease has ended, their answer has come, or
// their deadline has passed.
func (t *admission) resumeRuns(ctx context.Context) error {
	found, err := t.Tx.Line(ctx, jobstore.Line{Queue: t.l.q.Name, State: jobstore.Running, By: t.Now}, t.room)
	if err != nil {
		return err
	}
	var rest []*jobstore.Row // saved after the claimed jobs
	for i := range found {
		j := &found[i]
		// the deadline was set by a runner without Submit, or by an older version
		if t.l.c.NoDeadlines && j.Phase != jobstore.Answered {
			j.Phase, j.Deadline = "", time.Time{}
		}
		if !rules.Redeliver(j, t.Now, t.l.lease) {
			rest = append(rest, j)
			continue
		}
		t.hand(j, jobstore.Before{State: jobstore.Running, NextRun: j.NextRun})
	}
	t.saves = append(t.saves, rest...)
	return nil
}

// hand claims a job. Claimed jobs come first in t.saves, in the order of t.out.
func (t *admission) hand(j *jobstore.Row, was jobstore.Before) {
	t.saves = slices.Insert(t.saves, len(t.out), j)
	t.out = append(t.out, jobstore.Handout{Before: was, Asked: t.Asked})
	t.room--
}

// admit starts the jobs that the limit lets start. A job whose window is closed is moved to its
// next opening.
func (t *admission) admit(ctx context.Context) error {
	g := line.Gauge{Limit: t.l.q.limit(), Strict: t.l.q.Strict}
	if g.Limit > 0 {
		_, weight, err := line.Weigh(ctx, t.Tx, t.l.q.Name)
		if err != nil {
			return err
		}
		g.Taken = weight
	}
	ln := line.Line{Queue: t.l.q.Name, Order: t.l.q.Order, By: t.Now, Find: t.l.pace.sparing(t.Tx.Line)}
	var failed error
	err := ln.Each(ctx, g.Most, func() int { return t.room }, func(j *jobstore.Row) bool {
		if at, err := t.l.windows.Opens(j, t.Now); at.After(t.Now) {
			t.put(j, at, err)
			return t.moved < mostMoved
		}
		if g.Start(j.Weight) {
			failed = t.start(ctx, j)
		}
		return failed == nil && !g.Blocked && t.room > 0
	})
	t.again = t.room <= 0 || t.moved >= mostMoved
	if failed != nil {
		return failed
	}
	return err
}

// put lets a waiting job wait until at. unread, if not nil, says why its windows cannot be read.
func (t *admission) put(j *jobstore.Row, at time.Time, unread error) {
	j.NextRun = at
	if unread != nil {
		t.unread = append(t.unread, unreadWindow{j, unread})
	}
	t.saves = append(t.saves, j)
	t.moved++
}

// start begins an attempt of a job. It sets Handout.Refused if Begin fails or the key is taken.
func (t *admission) start(ctx context.Context, j *jobstore.Row) error {
	was := jobstore.Before{State: jobstore.Queued, NextRun: j.NextRun}
	key := j.Key
	j.State, j.Phase, j.Reason, j.Answer = jobstore.Running, "", "", nil
	// NextRun of a later attempt is not when the run was due
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
	t.hand(j, was)
	t.out[len(t.out)-1].Refused = refused
	return nil
}

// takeKey reserves the new key of j. refused reports that another job or task has the key.
func (t *admission) takeKey(ctx context.Context, j *jobstore.Row) (refused, err error) {
	t.missing = t.Locks.AddKey(j.Name, j.Key) != nil || t.missing
	if t.missing { // the transaction starts again once all missing locks are noted
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

// prepare calls Begin, by which the type of the job sets Key and Respond. A panic is an error of
// the attempt.
func (l *Leader) prepare(j *jobstore.Row) (err error) {
	if l.c.Begin == nil {
		return nil
	}
	defer guard.Recover(&err)
	return l.c.Begin(j)
}

// carryOut starts and postpones the jobs that a throttler has chosen. It skips a job that has
// changed since the plan was made.
func (t *admission) carryOut(ctx context.Context, plan *Look) error {
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
		if j := jobs[id]; j != nil && t.room > 0 {
			if err := t.start(ctx, j); err != nil {
				return err
			}
		}
	}
	for _, id := range plan.later {
		if j := jobs[id]; j != nil {
			o := plan.offered[id]
			at, err := t.l.windows.Opens(j, o.later)
			if err != nil { // the windows cannot be read: the job is held until later
				at = o.later
			}
			t.put(j, at, err)
		}
	}
	t.again = t.room <= 0 || len(plan.later) >= mostMoved || plan.partial
	return nil
}

// plan asks the throttler. idle reports that no job is to be started, moved or redelivered. plan is
// nil only with an error.
func (l *Leader) plan(ctx context.Context, room int) (plan *Look, idle bool, err error) {
	look := &Look{queue: l.q, room: room, gauge: line.Gauge{Limit: l.q.limit(), Strict: l.q.Strict}, opens: l.windows.Opens, offered: map[jobstore.ID]*offer{}}
	var running, version int64
	due := false
	err = l.store.View(ctx, func(ctx context.Context, tx jobstore.Tx) (err error) {
		if look.now, err = tx.Now(ctx); err != nil {
			return err
		}
		rec, err := tx.QueueLease(ctx, l.q.Name) // read first, so that a later admission is noticed
		if err != nil {
			return err
		}
		if version = 0; rec != nil {
			version = rec.Admissions
		}
		found, err := tx.Line(ctx, jobstore.Line{Queue: l.q.Name, State: jobstore.Running, By: look.now}, 1)
		if err != nil {
			return err
		}
		due = len(found) > 0
		running, look.gauge.Taken, err = line.Weigh(ctx, tx, l.q.Name)
		return err
	})
	if err != nil {
		return nil, false, err
	}
	if err := l.readRoster(ctx, int(running), version); err != nil {
		return nil, false, err
	}
	look.running = l.roster
	look.line = line.Line{Queue: l.q.Name, Order: l.q.Order, By: look.now, Find: l.pace.sparing(l.page)}
	began := time.Now()
	look.enough = l.pace.enough(began, l.signal)
	if err := l.ask(ctx, look); err != nil {
		return nil, false, err
	}
	if !look.partial {
		l.pace.whole, l.pace.wholeAt = time.Since(began), time.Now()
	}
	l.looked = look.now
	l.note(look.now, look.room <= 0, look.refused())
	return look, !due && len(look.starts) == 0 && len(look.later) == 0, nil
}

// view reads jobs in a transaction of its own. No transaction is open while a throttler works.
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

// page reads one page of the line.
func (l *Leader) page(ctx context.Context, q jobstore.Line, limit int) ([]jobstore.Row, error) {
	return l.view(ctx, func(ctx context.Context, tx jobstore.Tx) ([]jobstore.Row, error) { return tx.Line(ctx, q, limit) })
}

// readRoster updates the roster. It reads the roster anew if an admission is unknown, a job is
// missing, or it is older than rosterAge.
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

// inherit copies the shares of jobs whose run is the same as before.
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

// ask calls the throttler in a goroutine of its own, since a throttler may call runtime.Goexit. If
// the throttler fails, its decisions are dropped; moves of closed windows stay.
func (l *Leader) ask(ctx context.Context, look *Look) error {
	bounded, cancel := context.WithTimeout(ctx, l.lease/2)
	defer cancel()
	look.ctx = ctx
	err := fmt.Errorf("%w: the throttler ended its goroutine", task.ErrPanic)
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer guard.Recover(&err)
		err = l.q.Throttler.Admit(bounded, look)
	}()
	<-done
	look.over = true
	if look.err != nil {
		look.running.begun = nil
		return look.err
	}
	if err == nil {
		return nil
	}
	look.starts, look.running.begun = nil, nil
	moved := look.later[:0]
	for _, id := range look.later { // moves of closed windows stay
		if look.offered[id].window {
			moved = append(moved, id)
		}
	}
	look.later = moved
	for o := range maps.Values(look.offered) {
		o.start = false
	}
	if ctx.Err() == nil {
		l.c.Report(fmt.Errorf("jobs: the throttler of queue %q: %w", l.q.Name, err))
	}
	return nil
}

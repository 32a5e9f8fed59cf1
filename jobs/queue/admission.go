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
	// mostMoved is how many jobs one look moves into their windows.
	mostMoved = 2000
	// scanTime is from what time on a search that found nothing light enough is not made again for 100 times as long.
	scanTime = time.Millisecond
	calm     = 100
)

// turn is the transaction of a look.
type admission struct {
	*txn.Step
	l     *Leader
	room  int // for how many jobs there is room still
	saves []*jobstore.Row
	out   []jobstore.Handout
	again bool // there may be more to do at once
	moved int

	version  int64 // of the admissions of this queue, for its roster; 0: it is what it was
	outdated bool  // a plan was made without knowing of the last admission

	unread []unreadWindow // jobs that are held

	missing bool                   // locks of keys
	keys    map[string]jobstore.ID // that jobs of this look have got, by jobstore.KeyDigest
}

// unreadWindow is a job that is held because its windows cannot be read.
type unreadWindow struct {
	job *jobstore.Row
	err error
}

// look looks at the queue once, and hands out up to room jobs. again says that there may be more.
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

// settleRoster brings into the roster what was done. After an error nobody knows what that was.
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
	case t.room <= 0, t.outdated: // an answer has had a job go on that was to wait for another attempt
		t.again = true
	case plan != nil && plan.running.version != rec.Admissions: // an admission that nobody knew of: one whose transaction was given up, and was done after all
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

// resumeRuns hands out again what runs and is due: its lease has ended, or there is an answer, or there was none in time.
func (t *admission) resumeRuns(ctx context.Context) error {
	found, err := t.Tx.Line(ctx, jobstore.Line{Queue: t.l.q.Name, State: jobstore.Running, By: t.Now}, t.room)
	if err != nil {
		return err
	}
	var rest []*jobstore.Row // saved behind those that are handed out
	for i := range found {
		j := &found[i]
		if t.l.c.Entrusts && j.Phase != jobstore.Answered { // a deadline is of a runner that ran the job in place, or of an older version
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

// hand hands out a job. Those that are handed out are saved first.
func (t *admission) hand(j *jobstore.Row, was jobstore.Before) {
	t.saves = slices.Insert(t.saves, len(t.out), j)
	t.out = append(t.out, jobstore.Handout{Before: was, Asked: t.Asked})
	t.room--
}

// admit starts what the limit lets start.
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

// put has a job that waits wait until at; unread says that its windows cannot be read.
func (t *admission) put(j *jobstore.Row, at time.Time, unread error) {
	j.NextRun = at
	if unread != nil {
		t.unread = append(t.unread, unreadWindow{j, unread})
	}
	t.saves = append(t.saves, j)
	t.moved++
}

// start begins an attempt of a job.
func (t *admission) start(ctx context.Context, j *jobstore.Row) error {
	was := jobstore.Before{State: jobstore.Queued, NextRun: j.NextRun}
	key := j.Key
	j.State, j.Phase, j.Reason, j.Answer = jobstore.Running, "", "", nil
	if j.Attempt == 0 || j.Scheduled.IsZero() { // NextRun of a further attempt says nothing of when the run was due
		j.Scheduled = j.NextRun
	}
	j.LastRun = t.Now
	j.Run++
	j.Token++
	j.Attempt++
	j.Deadline = time.Time{}
	if j.Timeout > 0 && !t.l.c.Entrusts {
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

// takeKey has a job have a key that it had not before; refused says that another one has it.
func (t *admission) takeKey(ctx context.Context, j *jobstore.Row) (refused, err error) {
	t.missing = t.Locks.AddKey(j.Name, j.Key) != nil || t.missing
	if t.missing { // the transaction begins anew when all that it needs is known
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

// prepare has the job's type set what is kept of it. A panic there is an error of the attempt.
func (l *Leader) prepare(j *jobstore.Row) (err error) {
	if l.c.Begin == nil {
		return nil
	}
	defer guard.Recover(&err)
	return l.c.Begin(j)
}

// carryOut starts and puts off what a throttler has decided on. What others have changed since is left alone.
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
			if err != nil { // later is how long it is held
				at = o.later
			}
			t.put(j, at, err)
		}
	}
	t.again = t.room <= 0 || len(plan.later) >= mostMoved || plan.partial
	return nil
}

// plan asks the throttler. idle says that nothing is to be done; the Look is nil only with an error.
func (l *Leader) plan(ctx context.Context, room int) (plan *Look, idle bool, err error) {
	look := &Look{queue: l.q, room: room, gauge: line.Gauge{Limit: l.q.limit(), Strict: l.q.Strict}, opens: l.windows.Opens, offered: map[jobstore.ID]*offer{}}
	var running, version int64
	due := false
	err = l.store.View(ctx, func(ctx context.Context, tx jobstore.Tx) (err error) {
		if look.now, err = tx.Now(ctx); err != nil {
			return err
		}
		rec, err := tx.QueueLease(ctx, l.q.Name) // before the rest: what is admitted from now on shows
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

// view reads jobs in a transaction of its own: none is open while a throttler works.
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

// page reads a page of the line.
func (l *Leader) page(ctx context.Context, q jobstore.Line, limit int) ([]jobstore.Row, error) {
	return l.view(ctx, func(ctx context.Context, tx jobstore.Tx) ([]jobstore.Row, error) { return tx.Line(ctx, q, limit) })
}

// readRoster brings the roster up to date.
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

// inherit keeps the shares that were known.
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

// ask calls the throttler, in a goroutine of its own, which it may end. What it decided counts for nothing if it fails.
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
	for _, id := range look.later { // a closed window stays closed
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

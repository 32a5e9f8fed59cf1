package queue

import (
	"context"
	"iter"
	"time"

	"github.com/swarmiji/swarmiji/jobs/internal/line"
	"github.com/swarmiji/swarmiji/jobs/internal/rules"
	"github.com/swarmiji/swarmiji/jobs/jobstore"
	"github.com/swarmiji/swarmiji/task"
)

// Throttler decides which jobs of a queue start. It may be any logic, such as a limit for each
// customer.
type Throttler interface {
	// Admit reads the due jobs ([Look.Due]). It calls Start for jobs that run now, and Later for
	// jobs that wait until a time. Other jobs do not start now; the next look shows them again.
	//
	// One goroutine at a time calls Admit for a queue. It is called again at the next look: when a
	// job has come or has ended, and every [Queue].Poll. A change by time alone needs Later or
	// Poll.
	//
	// No transaction is open meanwhile, but the queue stands still. Be quick, and return when ctx
	// ends, which is well before the end of the queue's lease. After an error or a panic nothing is
	// started in this look; the error is reported. Admit must not keep l.
	Admit(ctx context.Context, l *Look) error
}

// ThrottlerFunc makes a function a [Throttler].
type ThrottlerFunc func(ctx context.Context, l *Look) error

// Admit calls f.
func (f ThrottlerFunc) Admit(ctx context.Context, l *Look) error { return f(ctx, l) }

// Look is one look at a queue, for a [Throttler]. Only the goroutine of Admit may use it, and only
// until Admit returns.
type Look struct {
	ctx     context.Context //nolint:containedctx // of one call of Admit, whose iterator reads the store
	queue   Queue
	now     time.Time
	room    int
	gauge   line.Gauge
	running *roster
	line    line.Line
	opens   func(j *jobstore.Row, t time.Time) (time.Time, error)

	offered map[jobstore.ID]*offer
	starts  []jobstore.ID
	later   []jobstore.ID
	passed  []jobstore.ID // the first jobs that were shown, in order
	enough  func(started bool) bool
	partial bool // the look ended with a part of the line
	over    bool
	err     error // the error of the store
}

// offer is a job that this look has read.
type offer struct {
	weight int64
	token  int64
	start  bool
	later  time.Time
	window bool // later is when the window opens
}

func (o *offer) decided() bool { return o.start || !o.later.IsZero() }

// Queue returns the queue of this look.
func (l *Look) Queue() Queue { return l.queue }

// Now returns the store's time.
func (l *Look) Now() time.Time { return l.now }

// Running returns the running jobs of the queue, jobs that await answers included, in the order of
// their starts. Jobs that this look has started come last.
//
// A job is as it was when it was started, or when it was read some minutes ago at most. The caller
// may change it. A job that ended moments ago may still be in the list.
func (l *Look) Running() []jobstore.Job {
	out := make([]jobstore.Job, 0, len(l.running.all)+len(l.starts))
	for _, r := range l.running.all {
		out = append(out, cloneRow(&r.job).Job)
	}
	for i := range l.running.begun {
		out = append(out, cloneRow(&l.running.begun[i].job).Job)
	}
	return out
}

// Due returns the jobs that are due and whose window is open, in the order of the queue. It reads
// them page by page. It ends when no worker is free. Each call begins again, without jobs that
// Start or Later was called for.
//
// If the line takes more than 100 ms to read, a look may show only its first part while jobs start
// and end. A look shows all of it every 10 s, or every five times its duration if that is longer.
func (l *Look) Due() iter.Seq[jobstore.Job] {
	return func(yield func(jobstore.Job) bool) {
		l.each(func() task.Opt[int64] { return task.Opt[int64]{} }, func(j *jobstore.Row) bool { return yield(j.Job) })
	}
}

// fitting yields the due jobs that the limit may let start.
func (l *Look) fitting(yield func(*jobstore.Row) bool) {
	if !l.gauge.Blocked {
		l.each(l.gauge.Most, func(j *jobstore.Row) bool { return yield(j) && !l.gauge.Blocked })
	}
}

// each yields the due jobs that are not heavier than most.
func (l *Look) each(most func() task.Opt[int64], yield func(*jobstore.Row) bool) {
	if l.over || l.err != nil {
		return
	}
	stopped := false
	room := func() int {
		if l.partial = l.partial || l.enough(len(l.starts) > 0); l.partial || l.over || l.room <= 0 {
			return 0
		}
		return line.LinePages
	}
	err := l.line.Each(l.ctx, most, room, func(j *jobstore.Row) bool {
		if !l.offer(j) {
			return true
		}
		stopped = !yield(j) || l.over || l.room <= 0
		return !stopped
	})
	if err != nil && l.err == nil {
		l.err = err
	}
}

// offer records a job, and reports whether to show it. A job whose window is closed is moved.
func (l *Look) offer(j *jobstore.Row) bool {
	if o := l.offered[j.ID]; o != nil {
		return !o.decided()
	}
	o := &offer{weight: j.Weight, token: j.Token}
	l.offered[j.ID] = o
	if at, _ := l.opens(j, l.now); at.After(l.now) { // carryOut reports unreadable windows
		if len(l.later) < mostMoved {
			o.later, o.window = at, true
			l.later = append(l.later, j.ID)
		}
		return false
	}
	if len(l.passed) < mostRefused {
		l.passed = append(l.passed, j.ID)
	}
	return true
}

// Start starts a job of this look. Returns false if one of these is true:
//
//   - the limit does not let it start;
//   - no worker is free;
//   - this look has not shown the job;
//   - Later was called for it.
func (l *Look) Start(j jobstore.Job) bool {
	o := l.offered[j.ID]
	if l.over || o == nil || !o.later.IsZero() {
		return false
	}
	if o.start {
		return true
	}
	if l.room <= 0 || !l.gauge.Start(o.weight) {
		return false
	}
	o.start = true
	l.room--
	l.starts = append(l.starts, j.ID)
	j.Weight = o.weight
	l.running.begin(&jobstore.Row{Job: j})
	return true
}

// Later lets a job of this look wait until at, or until its window opens after that. The time is
// stored; no attempt is counted.
//
// A job that was started stays started. A time that is not after Now changes nothing. A time after
// the year 9999 becomes the end of that year.
func (l *Look) Later(j jobstore.Job, at time.Time) {
	o := l.offered[j.ID]
	if l.over || o == nil || o.decided() || !at.After(l.now) {
		return
	}
	o.later = rules.Storable(at)
	l.later = append(l.later, j.ID)
}

// refused returns the first jobs that were shown and were neither started nor postponed.
func (l *Look) refused() []jobstore.ID {
	var out []jobstore.ID
	for _, id := range l.passed {
		if !l.offered[id].decided() {
			out = append(out, id)
		}
	}
	return out
}

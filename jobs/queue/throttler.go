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

// Throttler decides which of a queue's jobs start. It is arbitrary logic, as that at most so many of one customer run at a time.
type Throttler interface {
	// Admit goes through what is due ([Look.Due]) and calls Start for what is to run now and Later for what is to wait until a time; what it calls neither for is not
	// started now, and is there again in the next look. It is called by one goroutine at a time, for one queue, and again at the next look: when
	// something has come or has ended, and every [Queue].Poll. What is to change by time alone is told by Later, or found by Poll.
	//
	// No transaction is open meanwhile, but the queue stands still: it should be quick, and return when ctx ends, which is well before the lease of the queue does. An
	// error, or a panic, is reported, and then nothing is started in this look. It must not keep l.
	Admit(ctx context.Context, l *Look) error
}

// ThrottlerFunc is a function that is a [Throttler].
type ThrottlerFunc func(ctx context.Context, l *Look) error

// Admit calls f.
func (f ThrottlerFunc) Admit(ctx context.Context, l *Look) error { return f(ctx, l) }

// Look is one look at a queue, as a [Throttler] has it. Only the goroutine that Admit was called by uses it, and only until Admit returns.
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
	passed  []jobstore.ID // the first of those that were seen, in order
	enough  func(started bool) bool
	partial bool // the line was not gone through, since that was enough
	over    bool
	err     error // of the store
}

// offer is a job that was seen in a look.
type offer struct {
	weight int64
	token  int64
	start  bool
	later  time.Time
	window bool // later is when its window opens
}

func (o *offer) decided() bool { return o.start || !o.later.IsZero() }

// Queue returns the queue that is looked at.
func (l *Look) Queue() Queue { return l.queue }

// Now returns the store's time.
func (l *Look) Now() time.Time { return l.now }

// Running returns the jobs of the queue that run or await answers, in the order in which they began, those that were started in this look at the end. They are as they were when
// they were read, which is when they were started or at most some minutes ago, and may be changed. One that has ended in the last moments may still be there.
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

// Due goes through the jobs that are due and whose window is open, in the order of the queue. It reads them as it goes, and it ends when no worker is free for what else could be
// started. Each call begins anew, without what Start and Later were called for.
//
// Of a line that takes more than a tenth of a second to read, a look may show only the first part, while jobs start and end; but every ten seconds, or, if that is longer, every five times as
// long as it takes, a look shows all of it.
func (l *Look) Due() iter.Seq[jobstore.Job] {
	return func(yield func(jobstore.Job) bool) {
		l.each(func() task.Opt[int64] { return task.Opt[int64]{} }, func(j *jobstore.Row) bool { return yield(j.Job) })
	}
}

// fitting goes through those among Due that the limit may let start.
func (l *Look) fitting(yield func(*jobstore.Row) bool) {
	if !l.gauge.Blocked {
		l.each(l.gauge.Most, func(j *jobstore.Row) bool { return yield(j) && !l.gauge.Blocked })
	}
}

// each goes through what is due and not heavier than most says.
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

// offer notes that j was seen, and reports whether it is to be shown. One whose window is closed is moved.
func (l *Look) offer(j *jobstore.Row) bool {
	if o := l.offered[j.ID]; o != nil {
		return !o.decided()
	}
	o := &offer{weight: j.Weight, token: j.Token}
	l.offered[j.ID] = o
	if at, _ := l.opens(j, l.now); at.After(l.now) { // what is wrong with its windows is told when it is put off
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

// Start has a job of this look run. It returns false if the limit does not let it, or no worker is free for it, or it is not one that this look has shown, or Later was called for it.
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

// Later has a job of this look wait until at, or, if its window is closed then, until that opens. That is kept, and no attempt is counted. One that was started stays so. A time
// that is not after Now leaves the job where it is, and one beyond the year 9999 is the end of that.
func (l *Look) Later(j jobstore.Job, at time.Time) {
	o := l.offered[j.ID]
	if l.over || o == nil || o.decided() || !at.After(l.now) {
		return
	}
	o.later = rules.Storable(at)
	l.later = append(l.later, j.ID)
}

// refused returns the first jobs of those that were seen and are neither started nor put off.
func (l *Look) refused() []jobstore.ID {
	var out []jobstore.ID
	for _, id := range l.passed {
		if !l.offered[id].decided() {
			out = append(out, id)
		}
	}
	return out
}

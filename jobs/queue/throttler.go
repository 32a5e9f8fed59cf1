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

// Throttler decides which jobs of a queue start, by any rule, such as a limit for each customer.
type Throttler interface {
	// Admit reads the due jobs ([Admission.Due]). It calls Start for jobs that start now, and Later
	// for jobs that wait until a given time. Other jobs wait for the next call.
	//
	// One goroutine at a time calls Admit for a queue. It is called again when a job has become due or
	// has ended, and at the interval [Queue].Poll. If a decision changes with time alone, use Later or
	// Poll.
	//
	// No transaction is open during Admit, but no job of the queue starts. Return quickly, and when
	// ctx ends, which is well before the queue's lease ends. After an error or a panic no job starts;
	// the error is reported. Admit must not use l after its return.
	Admit(ctx context.Context, l *Admission) error
}

// ThrottlerFunc implements [Throttler] with a function.
type ThrottlerFunc func(ctx context.Context, l *Admission) error

// Admit calls f and returns its error. It implements [Throttler].
func (f ThrottlerFunc) Admit(ctx context.Context, l *Admission) error { return f(ctx, l) }

// Admission is the view of a queue that a [Throttler] receives, and collects its decisions. Only
// the goroutine of Admit may use it, and only until Admit returns.
type Admission struct {
	ctx     context.Context //nolint:containedctx // of one Admit, whose iterator reads the store
	queue   Queue
	now     time.Time
	slots   int
	gauge   line.Gauge
	running *roster
	line    line.Line
	opens   func(j *jobstore.Row, t time.Time) (time.Time, error)

	offered map[jobstore.ID]*offer
	starts  []jobstore.ID
	later   []jobstore.ID
	passed  []jobstore.ID // the first jobs that were yielded, in order
	// mayEndEarly reports whether Due may end before the last due job: see pace.mayEndEarly.
	mayEndEarly func(started bool) bool
	partial     bool // reading ended before all due jobs were seen
	// over reports that Admit has returned: Start, Later and Due then have no effect.
	over bool
	err  error // the error of the store
}

// offer is a due job that was read for the throttler, and the decision about it.
type offer struct {
	weight int64
	token  int64
	start  bool
	later  time.Time
	window bool // later is the opening of its window
}

// decided reports whether Start or Later was called for the job, or its window is closed.
func (o *offer) decided() bool { return o.start || !o.later.IsZero() }

// Queue returns the configuration of the queue.
func (l *Admission) Queue() Queue { return l.queue }

// Now returns the store's time at which the view was taken.
func (l *Admission) Now() time.Time { return l.now }

// Running returns the running jobs of the queue in the order of their starts, including jobs that
// await answers. Jobs that this call of Admit has started come last.
//
// The fields of a job are those of its start, or of a read some minutes ago at most. The list may
// contain a job that ended a moment ago. The caller may change the result.
func (l *Admission) Running() []jobstore.Job {
	out := make([]jobstore.Job, 0, len(l.running.all)+len(l.starts))
	for _, r := range l.running.all {
		out = append(out, cloneRow(&r.job).Job)
	}
	for i := range l.running.begun {
		out = append(out, cloneRow(&l.running.begun[i].job).Job)
	}
	return out
}

// Due returns an iterator over the due jobs whose window is open, in the order of the queue. It
// reads them page by page, also while the loop runs. It ends when no worker is free, and after an
// error of the store. No job starts after such an error, and [Leader.Next] returns it. Each new
// loop starts at the first job and leaves out jobs for which Start or Later was called.
//
// If reading the due jobs takes more than 100 ms, the iterator may yield only the first part of
// them while jobs start and end. It yields all of them every 10 s, or every five times the duration
// if that is longer.
func (l *Admission) Due() iter.Seq[jobstore.Job] {
	return func(yield func(jobstore.Job) bool) {
		l.each(func() task.Opt[int64] { return task.Opt[int64]{} }, func(j *jobstore.Row) bool { return yield(j.Job) })
	}
}

// fitting yields the due jobs as Due does, but leaves out jobs that are too heavy for the free
// weight of the queue. With Queue.Strict it yields all jobs and ends at the first that did not fit.
func (l *Admission) fitting(yield func(*jobstore.Row) bool) {
	if !l.gauge.Blocked {
		l.each(l.gauge.Most, func(j *jobstore.Row) bool { return yield(j) && !l.gauge.Blocked })
	}
}

// each yields the due jobs of weight most() or less, page by page, to yield. It calls most before
// each page. It leaves out jobs that the plan has started or postponed, or whose window is closed.
//
// It ends when yield returns false, no worker is free, Admit is over, or mayEndEarly allows it; the
// last sets l.partial. It stores an error of the store in l.err and does nothing while l.err is
// set.
func (l *Admission) each(most func() task.Opt[int64], yield func(*jobstore.Row) bool) {
	if l.over || l.err != nil {
		return
	}
	stopped := false
	slots := func() int {
		if l.partial = l.partial || l.mayEndEarly(len(l.starts) > 0); l.partial || l.over || l.slots <= 0 {
			return 0
		}
		return line.LinePages
	}
	err := l.line.Each(l.ctx, most, slots, func(j *jobstore.Row) bool {
		if !l.offer(j) {
			return true
		}
		stopped = !yield(j) || l.over || l.slots <= 0
		return !stopped
	})
	if err != nil && l.err == nil {
		l.err = err
	}
}

// offer records a due job in l.offered and reports whether to yield it. Returns false for a job
// that was started or postponed, and for a closed window. A job with a closed window is postponed
// to the next opening, up to mostMoved jobs. Windows that cannot be parsed count as closed for a
// minute. It notes the first mostRefused yielded jobs for the Status.
func (l *Admission) offer(j *jobstore.Row) bool {
	if o := l.offered[j.ID]; o != nil {
		return !o.decided()
	}
	o := &offer{weight: j.Weight, token: j.Token}
	l.offered[j.ID] = o
	// applyPlan reports windows that cannot be parsed
	if at, _ := l.opens(j, l.now); at.After(l.now) {
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

// Start plans the start of a job of this view: it will be claimed after Admit returns, unless it
// has changed meanwhile. It uses a free worker and the weight of the job. Returns true if the job
// is planned, also for a repeated call. Returns false if
//
//   - the limit does not admit it;
//   - no worker is free;
//   - Due has not yielded the job;
//   - Later was called for it;
//   - Admit has returned.
func (l *Admission) Start(j jobstore.Job) bool {
	o := l.offered[j.ID]
	if l.over || o == nil || !o.later.IsZero() {
		return false
	}
	if o.start {
		return true
	}
	if l.slots <= 0 || !l.gauge.Start(o.weight) {
		return false
	}
	o.start = true
	l.slots--
	l.starts = append(l.starts, j.ID)
	j.Weight = o.weight
	l.running.begin(&jobstore.Row{Job: j})
	return true
}

// Later postpones a job of this view until at, or until the first opening of its window after
// that. The time is stored after Admit returns. No attempt is counted. A time after the year 9999
// becomes the end of that year.
//
// A call has no effect after Admit has returned, if Due has not yielded the job, or if Start or
// Later was called for it. The same holds if at is not after Now.
func (l *Admission) Later(j jobstore.Job, at time.Time) {
	o := l.offered[j.ID]
	if l.over || o == nil || o.decided() || !at.After(l.now) {
		return
	}
	o.later = rules.Storable(at)
	l.later = append(l.later, j.ID)
}

// refused returns those of the first mostRefused yielded jobs that were neither started nor
// postponed, in order. The Status shows them.
func (l *Admission) refused() []jobstore.ID {
	var out []jobstore.ID
	for _, id := range l.passed {
		if !l.offered[id].decided() {
			out = append(out, id)
		}
	}
	return out
}

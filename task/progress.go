package task

import (
	"context"
	"time"

	"github.com/swarmiji/swarmiji/capability"
	"github.com/swarmiji/swarmiji/internal/utf"
)

// MaxProgressNote is the largest note of a progress, in bytes. A longer one is cut.
const MaxProgressNote = 255

// ProgressValue is the last reported progress of a task. The zero value means that none was
// reported.
type ProgressValue struct {
	Done  int       // finished parts; never negative
	Total int       // number of parts; 0: not known
	Note  string    // text of the handler, at most [MaxProgressNote] bytes; "": none
	At    time.Time // time of the report, in whole milliseconds; zero: no progress
}

// IsZero reports whether no progress was reported.
func (p ProgressValue) IsZero() bool { return p == ProgressValue{} }

// Progressor receives the progress of a running task. [Request.AddProgressor] adds it to a request.
type Progressor interface {
	// ReportProgress receives a valid value with its time. It must not block, and may be called by
	// several goroutines at once.
	ReportProgress(p ProgressValue)
}

// AddProgressor adds a receiver of the values that the handler of r gives to [Progress]. Consumers
// and job runners call it before the handler.
func (r *Request) AddProgressor(p Progressor) {
	if r.progress != nil {
		p = progressors{r.progress, p}
	}
	r.progress = p
}

// progressors are two receivers.
type progressors struct{ first, second Progressor }

func (ps progressors) ReportProgress(p ProgressValue) {
	ps.first.ReportProgress(p)
	ps.second.ReportProgress(p)
}

// Progress reports that the task of the running handler has finished done of total parts. ctx must
// be the context of the handler; with any other it does nothing. note may be empty.
//
// It returns at once, and may be called often and by several goroutines: the last value wins, and
// at most one a second is sent. A consumer sends an event of type task-progress and stores the
// value in the record of the task, if its store keeps records. The last value of an attempt is in
// the record of its end. A job runner stores it in the data of the job, see runner.ProgressKey of
// package jobs/runner.
//
// A value that cannot be sent is lost; the task is not affected. Negative numbers count as 0.
func Progress(ctx context.Context, done, total int, note string) {
	r, ok := FromContext(ctx)
	if !ok || r.progress == nil {
		return
	}
	r.progress.ReportProgress(ProgressValue{
		Done: max(done, 0), Total: max(total, 0), Note: utf.Cut(note, MaxProgressNote), At: time.Now().Truncate(time.Millisecond),
	})
}

// ProgressPending is a [Pending] that knows the progress of its task. Those of a producer do.
type ProgressPending interface {
	// Progress returns the last known progress of the task without waiting, which is the zero value if
	// none is known. It has the errors of State of [Pending].
	Progress(ctx context.Context) (ProgressValue, error)
}

// Progress returns the last progress that the handler of the task has stored, without waiting for
// the end. It is the zero value if none is known. Results in reply queues have no progress before
// their end: listen to events then. See [Pending] for the errors.
func (f *Future[R]) Progress(ctx context.Context) (ProgressValue, error) {
	p, ok := capability.As[ProgressPending](f.pending)
	if !ok {
		return ProgressValue{}, nil
	}
	return p.Progress(ctx)
}

// GroupProgress counts the ended members of a group.
type GroupProgress struct {
	Group  ID
	Done   int // members that have ended, also those that failed
	Failed int // members that did not succeed
	Total  int // number of members; 0: not known before the first end
}

// GroupPending is a [Pending] that knows the groups before its task. Those of a producer that has
// submitted the workflow do.
type GroupPending interface {
	// Groups returns the counts of the groups that must end before the task, in the order of the
	// workflow.
	Groups(ctx context.Context) ([]GroupProgress, error)
}

// Groups returns the counts of the groups of the workflow, in the order of their composition. The
// gatherer knows them. It leaves out the groups inside of a Map, whose number is unknown at
// submission. Without a gatherer it returns nil. Returns errors of the gatherer.
func (r *Run[R]) Groups(ctx context.Context) ([]GroupProgress, error) {
	p, ok := capability.As[GroupPending](r.Pending())
	if !ok {
		return nil, nil
	}
	return p.Groups(ctx)
}

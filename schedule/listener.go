package schedule

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/swarmiji/swarmiji/task"
)

// Listener claims and runs the due ticks of a schedule. Any number of processes can run a Listener
// of the same schedule. One of them runs each tick. If that listener dies, another one runs the
// tick again, with the same task id ([TickID]). Make a Listener with [NewListener].
//
// It runs ticks in one of two ways:
//
//   - In place: handlers registered with the Listener run in one of Workers goroutines. Errors and
//     panics are logged and counted, and the tick counts as done. There are no retries.
//   - As tasks: with ListenerConfig.Submit each tick is submitted as a task. Consumers run it, with
//     retries, results, queues and limits.
type Listener struct {
	c        ListenerConfig
	handlers task.Mux
	mu       sync.Mutex
	forwards map[string]forward
	stats    counters
	running  atomic.Bool
}

// counters holds the current values of Stats.
type counters struct {
	ran, failed, submitted, skipped, putOff, dropped, again, lost, repaired atomic.Int64
}

var _ task.Registrar = (*Listener)(nil)

// NewListener returns a Listener. It does no I/O and starts nothing. Unset fields of c get their
// defaults.
//
// Its error joins all problems: Store is nil, the name is missing, invalid, or not the store's own
// name, or a value is out of range. A result store that stores no results is [ErrUnsupported].
func NewListener(c ListenerConfig) (*Listener, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	return &Listener{c: c, forwards: map[string]forward{}}, nil
}

// Register sets the handler for the job name, as [task.Registrar] describes. Call it before or
// during Run. A name is any text of 1 to 255 bytes without control characters.
//
// Returns [ErrUnsupported] if the listener submits tasks; use [Forward] then. Returns
// task.ErrDuplicateTask if the name has a handler, and an error if the name or the defaults are
// invalid or h is nil.
func (l *Listener) Register(name string, h task.Handler, defaults task.Metadata) error {
	if l.c.Submit != nil {
		return fmt.Errorf("%w: this listener submits tasks; register %q with a consumer", ErrUnsupported, name)
	}
	return l.handlers.Register(name, h, defaults)
}

// Forward gives a listener that submits tasks the definition of a task. Call it before Run. It
// takes l.mu.
//
// With the definition, the call gets the metadata of the task, and the producer's serializer
// encodes the arguments. Metadata of the entry take precedence. Without it, arguments are submitted
// as JSON, and a list of one argument as this argument. A tick whose arguments do not fit the
// definition is postponed (ProblemRefused).
//
// Returns [ErrUnsupported] if the listener runs handlers in place, and task.ErrDuplicateTask if the
// task's name was given before.
func Forward[A, R any](l *Listener, t task.Task[A, R]) error {
	if l.c.Submit == nil {
		return fmt.Errorf("%w: this listener runs handlers in place; Forward needs a listener with Submit", ErrUnsupported)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.forwards[t.Name()] != nil {
		return fmt.Errorf("%w: %q", task.ErrDuplicateTask, t.Name())
	}
	l.forwards[t.Name()] = func(text json.RawMessage) (task.Call, error) {
		var args A
		err := decodeArgs(text, &args)
		return t.Call(args), err
	}
	return nil
}

// Stats returns the current counts of this Listener, see [Stats]. It takes no lock. Safe for
// concurrent use.
func (l *Listener) Stats() Stats {
	return Stats{
		Ran: l.stats.ran.Load(), Failed: l.stats.failed.Load(), Submitted: l.stats.submitted.Load(), Skipped: l.stats.skipped.Load(),
		PutOff: l.stats.putOff.Load(), Dropped: l.stats.dropped.Load(), Again: l.stats.again.Load(), Lost: l.stats.lost.Load(),
		Repaired: l.stats.repaired.Load(),
	}
}

// ErrRunning is returned by the second call of Run of a Listener.
var ErrRunning = errors.New("schedule: the listener was started already; make a new Listener")

// Run claims and runs due ticks until ctx ends, and then until they have ended. While the store is
// unavailable, Run retries.
//
// When ctx ends, Run claims no more ticks and releases those that have not started. Running
// handlers may continue for ShutdownTimeout. Then their contexts end with cause task.ErrShutdown,
// and the ticks of handlers that return an error are released: other listeners run them again.
//
// Returns [ErrRunning] if Run was called before, and an error if handlers still run 5 s after the
// end of their contexts. Otherwise it returns nil. The store is not closed.
func (l *Listener) Run(ctx context.Context) error {
	if !l.running.CompareAndSwap(false, true) {
		return ErrRunning
	}
	r := newRunner(l)
	return r.run(ctx)
}

// report logs a problem of tick k as a warning and calls OnReport, if it is set, on the calling
// goroutine. If k has no Due, the report concerns the entry, and its Task is "". report counts
// nothing.
func (l *Listener) report(p Problem, k *Tick, job string, err error) {
	r := Report{Problem: p, Entry: k.Entry, Job: job, Due: k.Due, Err: err}
	if !k.Due.IsZero() {
		r.Task = TickID(l.c.Name, k.ID, k.Due)
	}
	l.c.Logger.Warn("schedule: "+string(p), "schedule", l.c.Name, "entry", k.ID, "job", job, "due", k.Due.Format(time.RFC3339Nano), "error", err)
	if l.c.OnReport != nil {
		l.c.OnReport(r)
	}
}

// Name returns the name of the schedule.
func (l *Listener) Name() string { return l.c.Name }

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

// Listener runs what is due in a schedule, in any number of processes: each tick is run by one of them, and again by another if that one
// dies. It is a task.Registrar, so that handlers are registered as with a consumer. Make one with [NewListener].
//
// In place, a handler runs in one of Workers goroutines; its panics and errors are caught, logged and counted, and the run counts as
// done: there are no retries in place. Where they are wanted, and results, queues and limits, ticks are submitted as tasks
// (ListenerConfig.Submit). A tick has the same task id on every listener and after every crash ([TickID]).
type Listener struct {
	c        ListenerConfig
	handlers task.Mux
	mu       sync.Mutex
	forwards map[string]forward
	stats    counters
	running  atomic.Bool
}

// counters are Stats while they are counted.
type counters struct {
	ran, failed, submitted, skipped, putOff, dropped, again, lost, mended atomic.Int64
}

var _ task.Registrar = (*Listener)(nil)

// NewListener makes a Listener, or returns every problem of the configuration, joined. It does no I/O and starts nothing.
func NewListener(c ListenerConfig) (*Listener, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	return &Listener{c: c, forwards: map[string]forward{}}, nil
}

// Register implements task.Registrar. A name may be anything of 1 to 255 bytes without control characters, such as those of
// other languages. Where ticks are submitted there are no handlers to register ([ErrUnsupported]); see [Forward].
func (l *Listener) Register(name string, h task.Handler, defaults task.Metadata) error {
	if l.c.Submit != nil {
		return fmt.Errorf("%w: this listener submits tasks; register %q with a consumer", ErrUnsupported, name)
	}
	return l.handlers.Register(name, h, defaults)
}

// Forward tells a listener that submits tasks the definition of one: its metadata then are the call's lower layer, its arguments are written by
// the producer's own serializer, and a list of one stays a list where the task takes a list. A job whose definition is not known
// is submitted with its arguments as JSON, and of a list of one the element.
func Forward[A, R any](l *Listener, t task.Task[A, R]) error {
	if l.c.Submit == nil {
		return fmt.Errorf("%w: this listener runs handlers in place; Forward is for one with Submit", ErrUnsupported)
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

// Stats returns what was counted.
func (l *Listener) Stats() Stats {
	return Stats{
		Ran: l.stats.ran.Load(), Failed: l.stats.failed.Load(), Submitted: l.stats.submitted.Load(), Skipped: l.stats.skipped.Load(),
		PutOff: l.stats.putOff.Load(), Dropped: l.stats.dropped.Load(), Again: l.stats.again.Load(), Lost: l.stats.lost.Load(),
		Mended: l.stats.mended.Load(),
	}
}

// ErrRunning is returned by a second Run of a Listener.
var ErrRunning = errors.New("schedule: the listener runs already, or has run")

// Run runs what is due until ctx ends. Then it takes no more, gives back what has not begun, lets runs go on for up to ShutdownTimeout, ends
// their contexts with cause task.ErrShutdown, and gives back those that end because of it. The error is nil unless there was a
// mistake in using it. While the store is away Run waits for it. A Listener runs once.
func (l *Listener) Run(ctx context.Context) error {
	if !l.running.CompareAndSwap(false, true) {
		return ErrRunning
	}
	r := newRound(l)
	return r.run(ctx)
}

// report tells of a problem.
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

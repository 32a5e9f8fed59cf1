// Package crashes finds the tasks that end their process, and runs a suspect alone.
//
// A task that ends its process (a crash in C code, exhausted memory, os.Exit) would end one
// consumer after another. The broker reports only that a message was delivered before. That is also
// true of all messages beside it, and of messages that a stop, a lost connection or a lost lease
// gives back. Those must not count.
//
// Therefore a broker that is a [broker.Witness] stores notes of starts. The first start of a
// message is not noted. Each later start stores a note immediately before the handler runs, and
// reads the earlier notes. The node of a note is the consumer process that started the task:
//
//   - If the node is present or has left in order, the note is cleared.
//   - If the node is absent for Config.AbsentAfter without a break, the note counts as a death.
//
// After one death the task runs in quarantine. If the start that reaches MaxCrashes, which runs in
// quarantine, ends its process too, the task is dead-lettered. A retry, a snooze and a requeued
// dead letter have another generation, and so no notes.
package crashes

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/swarmiji/swarmiji/broker"
)

// Config configures a [Watch]. All fields except Witness are required.
type Config struct {
	Witness broker.Witness // keeps the notes; nil: starts are not noted, and no task is a suspect
	Node    string         // names this process in notes; another one for each start of the process
	// MaxCrashes is the number of starts that may end their process before a task is dead-lettered. At
	// least 3.
	MaxCrashes  int
	AbsentAfter time.Duration // the time without a sign of life after which a node is dead
	Running     func() int    // returns the number of running tasks
	Died        func()        // is called for each start that has ended its process
	// Unsupported is called each time that the broker cannot keep a note; the task then starts.
	Unsupported func(error)
	// Go runs a function on a goroutine that the stop of the consumer waits for.
	Go func(func())
}

// Run is one delivery of a task on its way to its handler. Its values are comparable, and equal
// only for the same delivery.
type Run interface {
	// State returns the state that a [Watch] keeps for the run, the same at each call.
	State() *State
	// Message returns the message of the task and the queue that delivered it.
	Message() (queue string, m *broker.Message)
	// WaitContext returns a context that ends when the task must not start any more: the consumer
	// stops, the queue is paused, or the broker has taken the task back. Call release after the wait.
	WaitContext() (ctx context.Context, release context.CancelFunc)
	// SetRunning adds the task to the running tasks of the consumer (true) or removes it (false).
	SetRunning(bool)
	// Reserve adds the task to the reserved tasks of the consumer (true) or removes it (false).
	Reserve(waits bool)
	// Start starts the task again from its wait for a free slot. It blocks until the handler has
	// returned.
	Start()
	// GiveBack returns the task to the broker, on another goroutine.
	GiveBack()
	// DeadLetter fails the task with err and dead-letters it, on another goroutine.
	DeadLetter(err error)
	// Log logs a message with the attributes of the task.
	Log(level slog.Level, msg string, attrs ...slog.Attr)
}

// State is the state of a [Run] for a [Watch]. The zero value is ready for use.
type State struct {
	suspect bool // an earlier start ended its process: run in quarantine
	// the open note of this start, or nil; a stop may clear it from another goroutine
	note atomic.Pointer[broker.Start]
}

// Suspect reports whether an earlier start of the task has ended its process. Call it on the
// goroutine of the run.
func (s *State) Suspect() bool { return s.suspect }

// Watch notes the starts of a consumer process and judges those of other processes. Safe for
// concurrent use.
type Watch struct {
	cfg         Config
	work, fetch context.Context
	noted       atomic.Bool // this node has noted a start
	quarantine  atomic.Pointer[isolation]
	nodes       nodes

	mu    sync.Mutex
	begun chan struct{} // closed when the next quarantine begins; nil until it is needed
}

// New returns a Watch. A quarantine ends with work at the latest, and the wait for a verdict with
// fetch.
func New(work, fetch context.Context, cfg *Config) *Watch {
	return &Watch{cfg: *cfg, work: work, fetch: fetch}
}

// Leave tells the broker that this node ends in order, so that its noted starts count as no deaths.
// It does nothing if this Watch has noted no start. It waits for the broker, at most until ctx
// ends, and returns its error.
func (w *Watch) Leave(ctx context.Context) error {
	if !w.noted.Load() {
		return nil
	}
	return w.cfg.Witness.Leave(ctx, w.cfg.Node)
}

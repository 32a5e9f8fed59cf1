// Package consumer takes tasks from a broker, runs their handlers and settles what became of them: the result stored, the
// successor or retry published, the message acknowledged, the event sent, always in this order.
//
// # Map
//
//   - consumer.go: New, Register, Run and the stop; signals.go: Run for a program; remote.go: commands from afar
//   - queue.go: one queue and its subscription
//   - pool.go: the workers of a queue, and the user's pool
//   - poll.go: workers that several queues share
//   - scale.go, pause.go, stats.go, autoscale.go: what can be changed and asked while it runs
//   - receive.go: from a delivery to a run, or to its end without one
//   - execute.go: a run; stuck.go: handlers that go on beyond their time limit
//   - revoked.go: tasks that must not start, or not go on
//   - settle.go: what a verdict means; records.go, successors.go: its first two steps; persist.go: how steps are repeated
//   - copies.go: which copy of a successor is run
//   - starts.go: tasks that end the process; nodes.go: which processes ended; quarantine.go: how suspects run
//   - atmostonce.go: tasks that are acknowledged before they run; deadletter.go: what failed for good
//   - admit.go: what decides whether a task may start now; sidequeue.go: what older versions left behind
//   - conditions.go: tasks that are jobs, too
//   - deferred.go: tasks whose answer comes from outside; answers.go: how their answers are taken; answer.go: how they are settled
//   - ratelimit.go: tasks that wait for their rate
//   - hooks.go: functions of the user's that are called on the way
//   - notify.go, heartbeat.go, lengths.go: events of tasks and of the consumer, how much waits
//   - internal/workflow: what follows a task; internal/rates: when a task may start by its rate limit;
//     internal/runs: what runs now, and how many may
package consumer

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/capability"
	"github.com/swarmiji/swarmiji/consumer/internal/rates"
	"github.com/swarmiji/swarmiji/consumer/internal/runs"
	"github.com/swarmiji/swarmiji/consumer/internal/workflow"
	"github.com/swarmiji/swarmiji/control"
	"github.com/swarmiji/swarmiji/internal/crew"
	"github.com/swarmiji/swarmiji/internal/report"
	"github.com/swarmiji/swarmiji/internal/utf"
	"github.com/swarmiji/swarmiji/internal/wire"
	"github.com/swarmiji/swarmiji/middleware"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/task"
)

// Errors of [Consumer.Run].
var (
	// ErrRunning: Run was called twice.
	ErrRunning = errors.New("swarmiji: consumer: Run was called before")
	// ErrForced: the stop could not wait for every task; those still running were given back, to run again elsewhere.
	ErrForced = errors.New("swarmiji: consumer: stopped before all tasks had ended")
)

// Errors of what changes a consumer that runs.
var (
	// ErrNotRunning: the consumer does not consume: Run was not called, still waits for the broker, or stops.
	ErrNotRunning = errors.New("swarmiji: consumer: not running")
	// ErrNoQueue: the consumer does not consume from this queue.
	ErrNoQueue = errors.New("swarmiji: consumer: no such queue")
)

// Consumer runs tasks. Register handlers, then call Run once. It is safe for concurrent use; handlers may be registered
// while it runs.
type Consumer struct {
	cfg        Config
	codec      *wire.Codec
	bind       func(contentType string, data []byte, v any) error // of codec, made once: a method value is an allocation
	successors *workflow.Config
	gather     resultstore.Gatherer // nil for none
	members    task.MembersFunc     // reads groups for handlers; nil for none
	mux        task.Mux
	rates      rates.Rates
	report     *report.Reporter // nil without Config.Events
	pid        int              // asked once: it is a system call, and in an event of each task
	secrets    sync.Map         // of a task's name: what of it is not shown, as secrets
	warned     sync.Map         // messages that are logged once

	// dequeued and enqueued run the hooks of dequeueing and enqueueing. nil: there are none.
	dequeued func(context.Context, *task.Request) error
	enqueued func(ctx context.Context, queue string, e *task.Envelope) (after func(error), veto error)

	stuck    stuck // handlers that go on beyond their hard time limit
	measured bool  // Metrics were given, so that somebody looks at them

	witness     broker.Witness // nil: no starts are noted
	incarnation string         // names this process in notes of starts

	started atomic.Bool
	killed  chan struct{} // closed by Kill
	kill    sync.Once
	stopped chan struct{} // closed by Stop
	halt    sync.Once
	remote  *control.Server // nil: it obeys no commands
	answers *answers        // nil: its tasks cannot wait for any

	// Set by Run.
	work       context.Context // of handlers; ends at the hard stop
	stopWork   context.CancelCauseFunc
	settle     context.Context // of settlement: outlives work by KillGrace
	stopSettle context.CancelFunc
	settling   *crew.Crew // settlements that go on beside the workers
	teams      []*team
	live       atomic.Pointer[live] // while it consumes
	running    runs.Registry[*run]  // runs whose handler has not returned
	reserved   runs.Set[*run]       // runs that a worker has taken and that have to wait
	quarantine quarantine           // the suspect that runs alone
	nodes      nodes                // that have noted starts
	noted      atomic.Bool          // this one has
}

// New makes a consumer, or returns every problem of the configuration, joined. It does no I/O and starts nothing.
func New(c Config) (*Consumer, error) {
	measured := c.Metrics != nil
	codec, err := c.complete()
	if err != nil {
		return nil, err
	}
	consumer := &Consumer{
		cfg: c, codec: codec, bind: codec.BindArgs, gather: resultstore.GathererOf(c.Gatherer, c.Results), measured: measured, killed: make(chan struct{}), stopped: make(chan struct{}), settling: crew.New(),
	}
	consumer.successors = consumer.workflowConfig()
	if consumer.gather != nil {
		consumer.members = consumer.successors.Members
	}
	if c.Tuning.MaxCrashes > 0 {
		consumer.witness, _ = capability.As[broker.Witness](c.Broker)
	}
	consumer.stuck = newStuck(c.Queues)
	consumer.incarnation = utf.Cut(c.Report.NodeID, 96) + "-" + rand.Text()[:12]
	consumer.report, consumer.pid = consumer.newReport(), os.Getpid()
	consumer.dequeued, consumer.enqueued = c.Hooks.Tasks.Dequeued(c.Logger), c.Hooks.Tasks.Enqueued(c.Logger)
	if c.Deferrals != nil {
		consumer.answers = newAnswers(consumer)
	}
	if consumer.remote, err = newRemote(consumer); err != nil {
		return nil, err
	}
	return consumer, nil
}

// NodeID returns this consumer's name in events and records.
func (c *Consumer) NodeID() string { return c.cfg.Report.NodeID }

// Register implements [task.Registrar]. The handler is wrapped in the consumer's middleware.
func (c *Consumer) Register(name string, h task.Handler, defaults task.Metadata) error {
	if h == nil {
		return fmt.Errorf("swarmiji: handler of %q is nil", name)
	}
	if d, ok := h.(task.Discreet); ok {
		h = d.Unwrap()
		args, result := d.Secrets()
		c.secrets.Store(name, secrets{args: args, result: result})
	}
	outer, h := middleware.Split(h)
	chain := []middleware.Middleware{middleware.Recover()}
	if hooks := c.cfg.Hooks.Tasks.Middleware(name, c.cfg.Logger); hooks != nil {
		chain = append(chain, hooks, middleware.Recover())
	}
	chain = append(chain, c.cfg.Middleware...)
	chain = append(append(chain, outer...), c.timeLimit)
	return c.mux.Register(name, middleware.Chain(h, chain...), defaults)
}

// Names returns the registered names, sorted.
func (c *Consumer) Names() []string { return c.mux.Names() }

// Run consumes the configured queues until ctx ends or Stop is called, then stops: it fetches nothing more, gives back what was not started,
// and waits up to ShutdownTimeout for running tasks. Those that still run then have their contexts cancelled (cause
// [task.ErrShutdown]) and are given back without counting an attempt; the error is then [ErrForced]. Run returns when its
// goroutines have, but for handlers that ignore their context for longer than KillGrace. A broker that cannot be reached
// is waited for; where it allows no more consumers, the queues that did open are consumed, and
// the others are logged. Handlers' contexts carry the values of ctx but do not end with it.
func (c *Consumer) Run(ctx context.Context) error {
	if !c.started.CompareAndSwap(false, true) {
		return ErrRunning
	}
	defer c.endReport(ctx) // when nothing is left to tell of
	c.work, c.stopWork = context.WithCancelCause(context.WithoutCancel(ctx))
	defer c.stopWork(task.ErrShutdown)
	c.settle, c.stopSettle = context.WithCancel(context.WithoutCancel(ctx))
	defer c.stopSettle()
	defer c.settling.Close()

	fetch, stopFetch := context.WithCancel(ctx)
	defer stopFetch()
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		select {
		case <-c.killed: // also while the broker is waited for
			stopFetch()
		case <-c.stopped:
			stopFetch()
		case <-fetch.Done():
		}
	}()
	defer func() {
		stopFetch()
		<-watched
	}()
	if err := c.beforeStart(fetch); err != nil {
		if fetch.Err() != nil { // stopped while it waited
			err = nil
		}
		return errors.Join(err, c.stop(nil))
	}
	defer c.obey(ctx)()
	unwatch, err := c.awaitRevocations(fetch)
	defer unwatch()
	if err != nil {
		c.beforeShutdown()
		if fetch.Err() != nil { // stopped while it waited for the bus
			return nil
		}
		return err
	}
	queues, err := c.openQueues(fetch)
	if err != nil {
		c.beforeShutdown()
		stop := c.stop(queues)
		if fetch.Err() != nil { // stopped while it waited for the broker
			return stop
		}
		return errors.Join(err, stop)
	}
	c.report.Start()
	failed := make(chan error, len(queues))
	c.teams = teamsOf(c, queues)
	for _, t := range c.teams {
		t.prepare(fetch, failed)
	}
	defer c.watchLengths(fetch)()
	stopAnswers, endAnswers := c.takeAnswers(fetch, queues)
	defer endAnswers()
	c.live.Store(&live{queues: queues, teams: c.teams})
	for _, t := range c.teams { // from here on a handler may scale and pause
		t.resize(t.workers())
	}
	defer c.autoscale(fetch, queues)()
	select {
	case <-fetch.Done():
	case err = <-failed:
	}
	stopFetch()
	stopAnswers() // what it took is waited for with the rest
	c.live.Store(nil)
	c.beforeShutdown()
	return errors.Join(err, c.stop(queues))
}

// Kill makes Run stop without waiting for running tasks: what a second signal asks for. Their contexts end at once; handlers
// that ignore that are left behind after KillGrace. It may be called at any time, more than once.
func (c *Consumer) Kill() { c.kill.Do(func() { close(c.killed) }) }

// Stop makes Run stop as the end of its ctx does, which is what a first signal asks for. It does not wait. It may be called at any
// time, more than once; before Run it has Run end at once.
func (c *Consumer) Stop() { c.halt.Do(func() { close(c.stopped) }) }

// openQueues declares the queues and subscribes to them, in the order of their names; ctx ends the
// fetching. Queues for which the broker has no consumers left are left out, unless they are all. It
// returns those that are open also when it fails.
func (c *Consumer) openQueues(ctx context.Context) ([]*queue, error) {
	var queues []*queue
	var tooMany error
	for _, name := range slices.Sorted(maps.Keys(c.cfg.Queues)) {
		q := newQueue(ctx, c, name, c.cfg.Queues[name])
		err := q.open(ctx)
		if errors.Is(err, broker.ErrTooMany) {
			q.log(slog.LevelError, "queue not consumed: the broker allows no more consumers", slog.Any("error", err))
			tooMany = fmt.Errorf("swarmiji: consumer: queue %q: %w", q.source, err)
			continue
		}
		if err != nil {
			return queues, fmt.Errorf("swarmiji: consumer: queue %q: %w", q.source, err)
		}
		queues = append(queues, q)
		if side := q.oldSideQueue(ctx); side != nil {
			queues = append(queues, side)
		}
	}
	if len(queues) == 0 {
		return nil, tooMany
	}
	return queues, nil
}

// stop ends the consumer after fetching has stopped.
func (c *Consumer) stop(queues []*queue) error {
	var closing sync.WaitGroup
	errs := make([]error, len(queues)+1)
	for _, t := range c.teams {
		t.stop()
	}
	c.rates.Close()
	for i, q := range queues {
		closing.Go(func() { errs[i] = q.giveBack() })
	}
	drained := make(chan struct{})
	go func() {
		closing.Wait() // it may bury what nobody can read
		for _, t := range c.teams {
			t.wg.Wait()
		}
		c.settling.Wait()
		close(drained)
	}()
	errs[len(queues)] = c.drain(drained)
	closing.Wait()
	c.leave()
	return errors.Join(errs...)
}

// drain waits for running tasks; when that takes too long it cancels them, and leaves behind those that do not care.
func (c *Consumer) drain(drained chan struct{}) error {
	soft := time.NewTimer(max(c.cfg.ShutdownTimeout, 0))
	defer soft.Stop()
	select {
	case <-drained:
		return nil
	default:
	}
	select {
	case <-drained:
		return nil
	case <-soft.C:
	case <-c.killed:
	}
	n := c.running.Len()
	c.cfg.Logger.LogAttrs(c.work, slog.LevelWarn, "stopping without waiting for running tasks",
		slog.String(middleware.LogNode, c.cfg.Report.NodeID), slog.Int("running", n))
	c.stopWork(task.ErrShutdown)
	hard := time.NewTimer(c.cfg.Tuning.KillGrace)
	defer hard.Stop()
	select {
	case <-drained:
	case <-hard.C:
		c.stopSettle()
		c.abandon()
		last := time.NewTimer(c.cfg.Tuning.KillGrace)
		defer last.Stop()
		select { // what was settling gives its tasks back
		case <-drained:
		case <-last.C:
		}
		return fmt.Errorf("%w: %d were running", ErrForced, n)
	}
	if n == 0 {
		return nil // all that was left was settled in the end
	}
	return fmt.Errorf("%w: %d were running", ErrForced, n)
}

// abandon gives back the tasks of handlers that ignore their context.
func (c *Consumer) abandon() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.work), c.cfg.Tuning.KillGrace)
	defer cancel()
	var leaving sync.WaitGroup // at once: each may need all the time there is
	defer leaving.Wait()
	for _, r := range c.running.All() {
		c.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "handler left behind: it ignores its context", r.logAttrs()...)
		leave := r.giveBack
		if r.acked.Load() && r.isActive() {
			leave = func(ctx context.Context) error { return r.abandon(ctx, task.ErrUncertain) }
		}
		leaving.Go(func() {
			if err := leave(ctx); err != nil && !broker.Gone(err) {
				c.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "task not given back; the broker will notice", r.logAttrs(slog.Any("error", err))...)
			}
		})
	}
}

// warnOnce logs a warning the first time key is seen.
func (c *Consumer) warnOnce(key, msg string, attrs ...slog.Attr) {
	if _, seen := c.warned.LoadOrStore(key, true); !seen {
		c.cfg.Logger.LogAttrs(context.Background(), slog.LevelWarn, msg,
			append(attrs, slog.String(middleware.LogNode, c.cfg.Report.NodeID))...)
	}
}

var _ task.Registrar = (*Consumer)(nil)

// Package consumer receives tasks from a broker, runs their handlers and settles the tasks.
//
// Make a consumer with [New], register handlers, and call [Consumer.Run] or [RunUntilSignal]. While
// it runs, it can be scaled, paused, resumed and inspected.
//
// A task is always settled in this order: store the result, publish the successors or the retry,
// acknowledge the message, send the event.
package consumer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/consumer/internal/answers"
	"github.com/swarmiji/swarmiji/consumer/internal/bursting"
	"github.com/swarmiji/swarmiji/consumer/internal/checkpoints"
	"github.com/swarmiji/swarmiji/consumer/internal/crashes"
	"github.com/swarmiji/swarmiji/consumer/internal/intake"
	"github.com/swarmiji/swarmiji/consumer/internal/intx"
	"github.com/swarmiji/swarmiji/consumer/internal/rates"
	"github.com/swarmiji/swarmiji/consumer/internal/runs"
	"github.com/swarmiji/swarmiji/consumer/internal/saves"
	"github.com/swarmiji/swarmiji/consumer/internal/steer"
	"github.com/swarmiji/swarmiji/consumer/internal/stores"
	"github.com/swarmiji/swarmiji/consumer/internal/workflow"
	"github.com/swarmiji/swarmiji/control"
	"github.com/swarmiji/swarmiji/internal/gopool"
	"github.com/swarmiji/swarmiji/internal/report"
	"github.com/swarmiji/swarmiji/internal/utf"
	"github.com/swarmiji/swarmiji/internal/wire"
	"github.com/swarmiji/swarmiji/middleware"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/task"
)

// Errors of [Consumer.Run].
var (
	// ErrRunning is returned if Run is called twice.
	ErrRunning = errors.New("swarmiji: consumer: Run was called twice")
	// ErrForced is returned if tasks still ran at the end of ShutdownTimeout or after Kill. They were
	// given back to the broker and run again elsewhere.
	ErrForced = errors.New("swarmiji: consumer: stopped before all tasks ended")
)

// Errors of the methods that change a running consumer.
var (
	// ErrNotRunning is returned while the consumer consumes no queues: before Run, while Run waits for
	// the broker, and during and after the stop.
	ErrNotRunning = intake.ErrNotRunning
	// ErrNoQueue is returned for a queue that this consumer does not consume.
	ErrNoQueue = errors.New("swarmiji: consumer: no such queue")
	// ErrQueueExists is returned by AddQueue for a queue that this consumer consumes already.
	ErrQueueExists = errors.New("swarmiji: consumer: the queue is consumed already")
	// ErrPolled is returned by RemoveQueue for a queue of a [Poll], whose workers it shares.
	ErrPolled = errors.New("swarmiji: consumer: the queue belongs to a poll and cannot be removed")
)

// Consumer runs tasks. Register handlers, then call Run once. Handlers may also be registered while
// it runs. Safe for concurrent use.
type Consumer struct {
	cfg   Config
	codec *wire.Codec
	// codec.BindArgs, stored once: a method value allocates
	bind        func(contentType string, data []byte, v any) error
	successors  *workflow.Config
	stores      stores.Stores
	savers      saves.Savers[ended]
	checkpoints checkpoints.Config
	bursts      bursting.Config
	databases   intx.Databases
	gather      resultstore.Gatherer // nil: no gatherer
	members     task.MembersFunc     // reads the members of groups for handlers; nil: no gatherer
	mux         task.Mux
	rates       rates.Rates
	report      *report.Reporter // nil without Config.Events
	pid         int              // read once: it is a system call, and each task's event holds it
	secrets     sync.Map         // task name -> secrets, the parts with secret fields
	warned      sync.Map         // keys of the warnings that were logged already

	// dequeued and enqueued call the hooks of dequeueing and enqueueing, and return their veto.
	// Without a veto call after with the outcome of the publish. dequeued is nil without hooks.
	dequeued func(context.Context, *task.Request) error
	enqueued func(ctx context.Context, queue string, e *task.Envelope) (after func(error), veto error)

	stuck          runs.Stuck // handlers that run beyond their hard time limit
	exportsMetrics bool       // Config.Metrics is set, so its values are read

	started  atomic.Bool
	killed   chan struct{} // closed by Kill
	kill     sync.Once
	stopped  chan struct{} // closed by Stop
	halt     sync.Once
	commands *control.Server   // nil: no commands are served
	answers  *answers.Receiver // nil: without Config.Deferrals
	steer    *steer.Steer      // nil: without Config.Settings

	// wanted are the queues of the program: those of Config, changed by AddQueue and RemoveQueue.
	// queues are the ones that are consumed, or will be after Run: they also follow the settings.
	wanted, queues runs.Named[QueueConfig]

	// Set by Run.
	work       context.Context // context of handlers; ends at the hard stop
	stopWork   context.CancelCauseFunc
	settle     context.Context // context of settlements; outlives work by KillGrace
	stopSettle context.CancelFunc
	settling   *gopool.Pool         // goroutines that settle tasks, apart from the workers
	fetch      context.Context      // ends when fetching stops
	failed     chan error           // receives the error that ends Run
	changing   sync.Mutex           // held while queues are added or removed
	loops      sync.WaitGroup       // goroutines that scale queues
	asides     sync.Map             // queues of paused tasks that are emptied now
	live       atomic.Pointer[live] // set while the consumer consumes
	stopping   atomic.Bool          // the fetching ends or has ended
	running    runs.Registry[*run]  // runs whose handler has not returned
	reserved   runs.Set[*run]       // runs that wait after a worker received them
	crashes    *crashes.Watch       // finds the tasks that end their process
}

// New returns a consumer for c, whose defaults it sets. It does no I/O and starts no goroutine.
// Returns all problems of the configuration as one joined error; those of Config.Control only if
// the rest is valid.
func New(c Config) (*Consumer, error) {
	measured := c.Metrics != nil
	codec, err := c.complete()
	if err != nil {
		return nil, err
	}
	consumer := &Consumer{
		cfg: c, codec: codec, bind: codec.BindArgs, gather: resultstore.GathererOf(c.Gatherer, c.Results), exportsMetrics: measured, killed: make(chan struct{}), stopped: make(chan struct{}), settling: gopool.New(),
	}
	consumer.stores = stores.Stores{Results: c.Results, Named: c.Stores, Warn: consumer.warnOnce}
	consumer.checkpoints = checkpoints.Config{Stores: &consumer.stores, Codec: codec, Limit: c.Tuning.StoreRetry}
	batches := saves.Config[ended]{Life: func() context.Context { return consumer.settle }, Limit: c.Tuning.StoreRetry, Go: consumer.settling.Go, Ended: acknowledge}
	consumer.savers = saves.New(batches, append(slices.Collect(maps.Values(c.Stores)), c.Results)...)
	consumer.successors = consumer.workflowConfig()
	consumer.bursts = bursting.Config{Store: bursting.StoreOf(c.Bursts, c.Results), Codec: codec, Broker: c.Broker, Sent: consumer.successors.Sent}
	if consumer.gather != nil {
		consumer.members = consumer.successors.Members
	}
	for name, q := range c.Queues {
		consumer.wanted.Set(name, q)
		consumer.queues.Set(name, q)
	}
	consumer.report, consumer.pid = consumer.newReport(), os.Getpid()
	consumer.dequeued, consumer.enqueued = c.Hooks.Tasks.Dequeued(c.Logger), c.Hooks.Tasks.Enqueued(c.Logger)
	if consumer.enqueued == nil {
		consumer.enqueued = func(context.Context, string, *task.Envelope) (func(error), error) { return func(error) {}, nil }
	}
	if c.Deferrals != nil {
		consumer.answers = newAnswers(consumer)
	}
	if err := consumer.newSteer(); err != nil {
		return nil, err
	}
	if consumer.commands, err = newCommandServer(consumer); err != nil {
		return nil, err
	}
	return consumer, nil
}

// NodeID returns the name of this consumer in events and records.
func (c *Consumer) NodeID() string { return c.cfg.Report.NodeID }

// Register registers the handler h for tasks of the given name, as [task.Registrar] describes.
//
// The handler is wrapped, from the outside: panic recovery, task hooks, Config.Middleware, the
// middleware of the task, time limits. If the types of the task have secret fields, events hide
// them. Returns an error if h is nil, or the error of [task.Mux.Register].
func (c *Consumer) Register(name string, h task.Handler, defaults task.Metadata) error {
	if h == nil {
		return fmt.Errorf("swarmiji: consumer: the handler of task %q is nil", name)
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

// Names returns the registered task names, sorted.
func (c *Consumer) Names() []string { return c.mux.Names() }

// Run consumes the configured queues and blocks until the consumer has stopped. The end of ctx,
// Stop and Kill start the stop.
//
// The stop:
//
//   - Run fetches no more tasks and gives back those that have not started.
//   - It calls Hooks.BeforeShutdown and waits for it.
//   - It waits up to ShutdownTimeout for running tasks.
//   - It then cancels the contexts of the remaining tasks with the cause [task.ErrShutdown] and
//     gives the tasks back without counting an attempt. Run then returns [ErrForced].
//   - It leaves behind the goroutines of handlers that ignore their context for longer than
//     KillGrace.
//
// Run waits for an unreachable broker, and logs that once. It also waits for the list of
// revocations. After a stop during these waits it returns nil. If the broker allows no more
// consumers, Run consumes the queues that it could open, and logs the others. The contexts of
// handlers carry the values of ctx but do not end with it.
//
// Returns nil after a stop in which all tasks ended, and [ErrRunning] if it is called a second
// time. Also returns errors of Hooks.BeforeStart, of Config.Revocations, and of a broker that was
// closed or cannot be used. If the broker refuses access before Run consumes its queues, Run
// returns [broker.ErrAccess]. A later refusal does not end Run: it is logged, and the broker is
// asked again.
func (c *Consumer) Run(ctx context.Context) error {
	if !c.started.CompareAndSwap(false, true) {
		return ErrRunning
	}
	defer c.report.Stop(context.WithoutCancel(ctx)) // last, so that all events are sent
	c.work, c.stopWork = context.WithCancelCause(context.WithoutCancel(ctx))
	defer c.stopWork(task.ErrShutdown)
	c.settle, c.stopSettle = context.WithCancel(context.WithoutCancel(ctx))
	defer c.stopSettle()
	defer c.settling.Close()

	fetch, stopFetch := context.WithCancel(ctx)
	defer stopFetch()
	c.fetch, c.failed = fetch, make(chan error, 1)
	c.crashes = c.newCrashWatch(fetch)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		select {
		case <-c.killed: // also while Run waits for the broker
		case <-c.stopped:
		case <-fetch.Done():
		}
		c.stopping.Store(true) // before the fetching ends: Stats tells the stop first
		stopFetch()
	}()
	defer func() {
		stopFetch()
		<-watched
	}()
	if err := c.beforeStart(fetch); err != nil {
		if fetch.Err() != nil { // stopped while it waited
			err = nil
		}
		return errors.Join(err, c.stop(nil, nil))
	}
	unwatch, err := c.awaitServers(fetch)
	defer unwatch()
	if err != nil {
		c.beforeShutdown()
		if fetch.Err() != nil { // stopped while it waited
			return nil
		}
		return err
	}
	queues, err := c.openQueues(fetch)
	if err != nil {
		c.beforeShutdown()
		stop := c.stop(queues, nil)
		if fetch.Err() != nil { // stopped while it waited for the broker
			return stop
		}
		return errors.Join(err, stop)
	}
	c.logStart(queues)
	c.report.Start()
	workers := workersOf(c, queues)
	defer c.watchLengths(fetch)()
	serveCommands, endCommands := control.Start(ctx, controlNode{c}, c.commands, c.cfg.ControlServices)
	defer endCommands() // also during a stop
	c.live.Store(&live{queues: queues, workers: workers})
	stopAnswers, endAnswers := c.answers.Start(fetch, c.cfg.Revocations != nil)
	defer endAnswers()
	for _, t := range workers { // from here on a handler may call Scale and Pause
		t.Start()
	}
	c.autoscale(queues)
	serveCommands() // before this point they would fail
	defer c.loops.Wait()
	defer c.followSettings(fetch)()
	select {
	case <-fetch.Done():
	case err = <-c.failed:
	}
	stopFetch()
	stopAnswers() // drain waits for the deferrals that were received
	last := c.endLive()
	c.beforeShutdown()
	return errors.Join(err, c.stop(last.queues, last.workers))
}

// Kill makes Run stop without waiting for running tasks, as for a second signal. It cancels the
// contexts of the handlers at once. Handlers that ignore this are left behind after KillGrace. Kill
// does not block. It may be called at any time and repeatedly.
func (c *Consumer) Kill() { c.kill.Do(func() { close(c.killed) }) }

// Stop makes Run stop as the end of its ctx does, as for a first signal. It does not wait for the
// end of Run. It may be called at any time and repeatedly. If it is called before Run, Run ends at
// once.
func (c *Consumer) Stop() { c.halt.Do(func() { close(c.stopped) }) }

// awaitServers waits until the broker answers, the list of revocations is loaded and the settings
// are read. It declares the first queue by name and makes the tables of SQL result stores. Then it
// calls awaitRevocations and [steer.Steer.Load]. If ctx ends first, it returns the last error. It
// also returns an error if the broker refuses the queue, except for [broker.ErrTooMany]: openQueues
// skips such a queue. Call unwatch at the end, after an error as well; it is never nil.
//
// The broker comes first because its refusal must end Run. The bus of the revocations is usually on
// the same server, so the wait for the bus might hide that refusal.
func (c *Consumer) awaitServers(ctx context.Context) (unwatch func(), err error) {
	name := slices.Min(slices.Collect(maps.Keys(c.cfg.Queues)))
	cfg := c.cfg.Queues[name]
	// openQueues skips a queue with too many consumers
	err = newQueue(c, name, name, &cfg).in.Declare(ctx)
	if err != nil && !errors.Is(err, broker.ErrTooMany) {
		return func() {}, fmt.Errorf("swarmiji: consumer: queue %q: %w", name, err)
	}
	intx.Prepare(ctx, c.cfg.Broker, loadTimeout, append(slices.Collect(maps.Values(c.cfg.Stores)), c.cfg.Results)...)
	forget, err := c.awaitRevocations(ctx)
	if err != nil || c.steer == nil {
		return forget, err
	}
	unfollow, err := c.steer.Load(ctx)
	return func() { unfollow(); forget() }, err
}

// logStart logs the consumed queues and the tasks that have handlers, each list cut to maxNames
// bytes. Without handlers it is a warning.
func (c *Consumer) logStart(queues []*queue) {
	names := c.Names()
	level, msg := slog.LevelInfo, "consumer started"
	if len(names) == 0 {
		level, msg = slog.LevelWarn, "consumer started without a handler; it delays each task, which fails after the last delay"
	}
	sources := make([]string, len(queues))
	for i, q := range queues {
		sources[i] = q.source
	}
	c.cfg.Logger.LogAttrs(c.work, level, msg, slog.String("queues", utf.Cut(strings.Join(sources, " "), maxNames)),
		slog.Int("handlers", len(names)), slog.String("tasks", utf.Cut(strings.Join(names, " "), maxNames)),
		slog.String(middleware.LogNode, c.cfg.Report.NodeID))
}

// maxNames limits the bytes of the names of queues and of tasks in the log of a start.
const maxNames = 1024

// openQueues declares the configured queues and subscribes to them, sorted by name, and to the side
// queues that older versions left. It waits for an unreachable broker until ctx ends; ctx later
// ends the fetching too.
//
// A queue for which the broker allows no more consumers is logged and skipped. If that holds for
// all queues, it returns nil and that error. Any other error ends it at once; it then returns the
// queues opened so far, which the caller must close.
func (c *Consumer) openQueues(ctx context.Context) ([]*queue, error) {
	var queues []*queue
	var tooMany error
	for _, name := range slices.Sorted(maps.Keys(c.cfg.Queues)) {
		cfg := c.cfg.Queues[name]
		q := newQueue(c, name, name, &cfg)
		_ = q.applySettings() // not open: there is no error
		err := q.in.Open(ctx)
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

// stop ends the consumer and blocks until that is done. Call it after fetching has stopped. It
// gives back tasks that have not started, also those that wait for their rate limit. It closes the
// subscriptions of queues. It waits for running tasks as Run describes, and then tells the broker
// that this node leaves. Returns the errors of closing and [ErrForced], joined.
func (c *Consumer) stop(queues []*queue, workers []*intake.Workers) error {
	var closing sync.WaitGroup
	errs := make([]error, len(queues)+1)
	for _, t := range workers {
		t.Stop()
	}
	c.rates.Close()
	for i, q := range queues {
		closing.Go(func() { errs[i] = q.close() })
	}
	drained := make(chan struct{})
	go func() {
		closing.Wait() // closing may start settlements, for unreadable messages
		for _, t := range workers {
			t.Wait()
		}
		c.settling.Wait()
		close(drained)
	}()
	errs[len(queues)] = c.drain(drained)
	closing.Wait()
	c.announceLeave()
	return errors.Join(errs...)
}

// drain waits for drained, which is closed when all tasks are settled. After ShutdownTimeout or
// Kill it cancels the handlers, logs that, and waits for KillGrace. Then it ends the settlements
// and gives the remaining tasks back, within KillGrace. It does not wait for handlers that it
// leaves behind.
//
// Returns [ErrForced] if handlers still ran after the first wait, or settlements after the second
// one. Otherwise returns nil.
func (c *Consumer) drain(drained chan struct{}) error {
	d := runs.Drain{
		Timeout: c.cfg.ShutdownTimeout, Grace: c.cfg.Tuning.KillGrace, Killed: c.killed, Running: c.running.Len, Settled: c.settling.Wait,
		Cancel: func(n int) {
			c.cfg.Logger.LogAttrs(c.work, slog.LevelWarn, "stopping without waiting for running tasks",
				slog.String(middleware.LogNode, c.cfg.Report.NodeID), slog.Int("running", n))
			c.stopWork(task.ErrShutdown)
		},
		Abandon: func() {
			c.stopSettle()
			c.releaseRunning()
		},
	}
	if n, forced := d.Wait(drained); forced {
		return fmt.Errorf("%w: %d were running", ErrForced, n)
	}
	return nil
}

// releaseRunning gives back the tasks whose handlers ignore their ended context, all at once, and
// waits for that within KillGrace. For a started task that was acknowledged before its start it
// calls recordAbandoned instead, which dead-letters the task and records it as uncertain. It logs
// each task and each error.
func (c *Consumer) releaseRunning() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.work), c.cfg.Tuning.KillGrace)
	defer cancel()
	var leaving sync.WaitGroup // all at once: each may need the whole time
	defer leaving.Wait()
	for _, r := range c.running.All() {
		c.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "handler left behind: it ignores its context", r.logAttrs()...)
		leave := r.giveBack
		if r.acked.Load() && r.started.Load() { // also if the release of an admission does not return
			leave = func(ctx context.Context) error { return r.recordAbandoned(ctx, task.ErrUncertain) }
		}
		leaving.Go(func() {
			if err := leave(ctx); err != nil && !broker.Gone(err) {
				c.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "the task was not given back; the broker will deliver it again", r.logAttrs(slog.Any("error", err))...)
			}
		})
	}
}

// warnOnce logs msg as a warning, with attrs and the node, the first time that it is called with
// key. Later calls with key do nothing.
func (c *Consumer) warnOnce(key, msg string, attrs ...slog.Attr) {
	if _, seen := c.warned.LoadOrStore(key, true); !seen {
		c.cfg.Logger.LogAttrs(context.Background(), slog.LevelWarn, msg,
			append(attrs, slog.String(middleware.LogNode, c.cfg.Report.NodeID))...)
	}
}

var _ task.BatchRegistrar = (*Consumer)(nil)

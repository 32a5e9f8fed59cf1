package consumer

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"runtime"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/capability"
	"github.com/swarmiji/swarmiji/control"
	"github.com/swarmiji/swarmiji/deferral"
	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/internal/nodeid"
	"github.com/swarmiji/swarmiji/internal/report"
	"github.com/swarmiji/swarmiji/internal/wire"
	"github.com/swarmiji/swarmiji/middleware"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/revoke"
	"github.com/swarmiji/swarmiji/router"
	"github.com/swarmiji/swarmiji/serializer"
	"github.com/swarmiji/swarmiji/task"
)

// DefaultShutdownTimeout is how long a stop waits for running tasks unless Config says otherwise.
const DefaultShutdownTimeout = 30 * time.Second

// Config configures a consumer. Only Broker must be set. The consumer does not close what it is given.
type Config struct {
	Broker broker.Broker
	// Results is where results go. nil: results of tasks that want one are dropped, and a warning says so once.
	Results resultstore.ResultStore
	// Stores are further stores, by the name that a task's ResultStore metadata gives.
	Stores map[string]resultstore.ResultStore
	// Gatherer gathers the members of groups. nil: Results, where that is one; without any, what follows a group fails.
	Gatherer resultstore.Gatherer
	// Events gets the events of tasks, and of this consumer. nil: none are sent. Tasks never wait for it, and what it loses
	// is counted (Metrics.Dropped).
	Events events.EventBus
	// Report is what this consumer tells of itself and of its tasks.
	Report events.Report
	// Wire is how tasks are read, and how results and the tasks that follow become messages: as the
	// producers have it.
	Wire serializer.Wire
	// Revocations are asked, before any task is fetched, at receipt and immediately before each
	// start. Run does not fetch before they are read, see [revoke.Config]. nil: no task is revoked,
	// which Run warns of, but by a command (see Control), which this process then keeps to itself,
	// as [revoke.NewLocal] does.
	Revocations *revoke.List
	// Deferrals keep tasks that wait for answers from outside: [task.Defer] and [task.Expect]. Any
	// consumer of a task's queue over the same store settles it when the answer comes. The package
	// jobs/deferrals keeps them beside jobs. nil: a task that defers fails with [task.ErrNoAnswers].
	Deferrals deferral.Store
	// Jobs hears of the end of tasks with conditions ([task.Conditions]): their jobs end at once, and
	// not only when the runner that sent them looks for their records. A jobs.Service is one. nil: only that look ends them.
	Jobs TaskEnder
	// Queues are the queues to consume. nil: router.DefaultQueue with default settings. See [QueuesOf].
	// Consumers of a queue also empty the queue of its name and ".suspects", which older versions
	// may have left: use no such name.
	Queues map[string]QueueConfig
	// Polls are sets of workers that several queues share, in strict order. Other queues have workers of their own.
	Polls []Poll
	// Defaults is the static configuration of tasks, the lowest layer of metadata of this process.
	Defaults task.Metadata
	// Hooks are called when something happens to the consumer or to a task.
	Hooks Hooks
	// Admit decides whether a task may start now, in this order, for each start; see [middleware.Admit]. A start that one refuses
	// is not asked of the next ones.
	Admit []middleware.Admit
	// Middleware wraps every handler, the first outermost. Time limits lie inside it; a panic is caught around it.
	Middleware []middleware.Middleware
	// Pool runs the handlers. nil: the consumer's own goroutines, one for each worker.
	Pool Pool
	// ShutdownTimeout is how long a stop waits for running tasks before it cancels their contexts. 0: 30 s. Negative: no wait.
	ShutdownTimeout time.Duration
	// Control lets this consumer be commanded over a bus: asked, scaled, paused, stopped. nil: nobody can. Its Bus has to be
	// set; open.Options.Control makes one. Its Logger is this configuration's where it has none.
	Control *control.Config
	// Logger gets what nobody is returned. nil: slog.Default().
	Logger *slog.Logger
	// Metrics counts. nil: counted and not registered.
	Metrics *middleware.Metrics
	// Tuning has what few programs change.
	Tuning Tuning
}

// QueueConfig says how one queue is consumed. The zero value is usable.
type QueueConfig struct {
	// Workers is how many handlers run at once. 0: runtime.GOMAXPROCS.
	Workers int
	// Autoscale changes the number of workers by what waits. nil: it stays, unless Scale changes it.
	Autoscale *Autoscale
	// PrefetchMultiplier times the workers is how many unsettled tasks may be held, also after Scale: 1 has each worker hold its
	// task and no other, which shares long tasks fairly between processes. 0: Tuning.PrefetchMultiplier.
	PrefetchMultiplier int
	// Prefetch says instead how many unsettled tasks may be held, whatever Workers is. A large number (64 and more) makes short
	// tasks faster. 0: the multiplier counts. Negative: no limit.
	Prefetch int
	// Lease is how long the broker waits for a sign of life of this process, where it has leases. 0: the adapter's default.
	Lease time.Duration
	// Task runs messages that name no task, such as raw bytes of any content type. The body of such
	// a message is the task's arguments, byte for byte where the task takes []byte. With a Task, a
	// message is an envelope only if it says so: by a content type of ours, by the header of
	// serializer.RawFormat, or, as JSON, by an "id" that is also the message's. "": what names no
	// task goes to the dead letters.
	Task string
	// Meta is this consumer's own configuration of the queue's tasks: over Defaults, below a task's definition.
	Meta task.Metadata
	// Levels declares the queue with priority levels (upper bounds, ascending), as the producers do.
	Levels []int
}

// QueuesOf returns default settings for every queue a router may name.
func QueuesOf(r router.Router) map[string]QueueConfig {
	qs := make(map[string]QueueConfig)
	for _, name := range r.Queues() {
		qs[name] = QueueConfig{}
	}
	return qs
}

// complete validates c and fills in its defaults.
func (c *Config) complete() (*wire.Codec, error) {
	var errs []error
	if c.Broker == nil {
		errs = append(errs, errors.New("config: Broker is not set"))
	}
	if c.Report.NodeID == "" {
		c.Report.NodeID = nodeid.New()
	} else if err := task.CheckName(c.Report.NodeID); err != nil {
		errs = append(errs, fmt.Errorf("config: Report.NodeID: %w", err))
	}
	if err := c.Defaults.Check(); err != nil {
		errs = append(errs, fmt.Errorf("config: Defaults: %w", err))
	}
	for name, s := range c.Stores {
		if s == nil {
			errs = append(errs, fmt.Errorf("config: Stores: store %q is nil", name))
		}
	}
	if a, ok := capability.As[broker.PrefetchAdviser](c.Broker); ok {
		setDefault(&c.Tuning.PrefetchMultiplier, a.PrefetchPerWorker())
	}
	setDefault(&c.ShutdownTimeout, DefaultShutdownTimeout)
	errs = append(errs, c.Tuning.complete(), report.CheckEvery(c.Report.HeartbeatEvery))
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.Metrics == nil {
		c.Metrics = middleware.NewMetrics(nil)
	}
	errs = append(errs, c.completeQueues())
	codec, err := wire.New(c.Wire)
	if err := errors.Join(append(errs, err)...); err != nil {
		return nil, fmt.Errorf("swarmiji: consumer: %w", err)
	}
	return codec, nil
}

func (c *Config) completeQueues() error {
	if len(c.Queues) == 0 && len(c.Polls) == 0 {
		c.Queues = map[string]QueueConfig{router.DefaultQueue: {}}
	}
	var errs []error
	queues := make(map[string]QueueConfig, len(c.Queues)) // the caller's map stays as it is
	maps.Copy(queues, c.Queues)
	errs = append(errs, c.completePolls(queues))
	for name, q := range queues {
		if err := task.CheckName(name); err != nil {
			errs = append(errs, fmt.Errorf("config: Queues: %w", err))
		}
		if _, taken := queues[name+sideSuffix]; taken {
			errs = append(errs, fmt.Errorf("config: Queues: %q is the name that older versions gave to the side queue of %q, which consumers of %[2]q empty; choose another name",
				name+sideSuffix, name))
		}
		if q.Autoscale != nil {
			var err error
			if q.Autoscale, err = q.Autoscale.complete(); err != nil {
				errs = append(errs, fmt.Errorf("config: Queues: %q: Autoscale: %w", name, err))
			}
			q.Workers = min(max(q.Workers, q.Autoscale.Min), q.Autoscale.Max)
		}
		setDefault(&q.Workers, defaultWorkers())
		setDefault(&q.PrefetchMultiplier, c.Tuning.PrefetchMultiplier)
		if q.Workers < 0 {
			errs = append(errs, fmt.Errorf("config: Queues: %q has %d workers", name, q.Workers))
		}
		if q.PrefetchMultiplier < 0 {
			errs = append(errs, fmt.Errorf("config: Queues: %q: PrefetchMultiplier is %d", name, q.PrefetchMultiplier))
		}
		if err := q.Meta.Check(); err != nil {
			errs = append(errs, fmt.Errorf("config: Queues: %q: %w", name, err))
		}
		queues[name] = q
	}
	c.Queues = queues
	return errors.Join(errs...)
}

func defaultWorkers() int { return runtime.GOMAXPROCS(0) }

func setDefault[T comparable](v *T, def T) {
	var zero T
	if *v == zero {
		*v = def
	}
}

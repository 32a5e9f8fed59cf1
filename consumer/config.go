package consumer

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"runtime"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/capability"
	"github.com/swarmiji/swarmiji/consumer/internal/intake"
	"github.com/swarmiji/swarmiji/control"
	"github.com/swarmiji/swarmiji/deferral"
	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/internal/nodeid"
	"github.com/swarmiji/swarmiji/internal/report"
	"github.com/swarmiji/swarmiji/internal/utf"
	"github.com/swarmiji/swarmiji/internal/wire"
	"github.com/swarmiji/swarmiji/limit"
	"github.com/swarmiji/swarmiji/middleware"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/revoke"
	"github.com/swarmiji/swarmiji/router"
	"github.com/swarmiji/swarmiji/serializer"
	"github.com/swarmiji/swarmiji/settings"
	"github.com/swarmiji/swarmiji/task"
)

// DefaultShutdownTimeout is the default of Config.ShutdownTimeout.
const DefaultShutdownTimeout = 30 * time.Second

// Config configures a consumer. Only Broker is required. The consumer does not close the broker,
// stores and buses of its configuration.
type Config struct {
	Broker broker.Broker
	// Results stores the results of tasks. nil: results are dropped, and the consumer warns once if a
	// submitter waits for one.
	Results resultstore.ResultStore
	// Stores are further result stores. A task chooses one by the name in its ResultStore metadata.
	Stores map[string]resultstore.ResultStore
	// Gatherer collects the results of the members of groups. nil: Results, if it is a
	// [resultstore.Gatherer]. Without a gatherer the tasks that follow a group fail.
	Gatherer resultstore.Gatherer
	// Bursts keeps the records of bursts ([task.Burst]), the same as that of the producers. nil:
	// Results, if it is a [resultstore.Swapper]. Without one the tasks of bursts fail.
	Bursts resultstore.Swapper
	// Events receives the events of tasks and of this consumer. nil: no events are sent. Tasks never
	// wait for the bus; Metrics.Dropped counts lost events.
	Events events.EventBus
	// Report configures which events this consumer sends about itself and its tasks.
	Report events.Report
	// Wire configures how tasks are decoded, and how results and successors are encoded. Use the same
	// values as the producers.
	Wire serializer.Wire
	// Revocations is checked when a task is received and immediately before it starts. Run fetches no
	// tasks before the list is loaded, see [revoke.Config].
	//
	// nil: only commands (see Control) revoke tasks, and only in this process, as with
	// [revoke.NewLocal]. Run then logs a warning.
	Revocations *revoke.List
	// Deferrals stores the tasks that wait for answers from outside: [task.Defer] and [task.Expect].
	// When the answer comes, any consumer of the task's queue over the same store settles the task.
	// The package jobs/deferrals implements it. nil: a task that defers fails with
	// [task.ErrNoAnswers].
	Deferrals deferral.Store
	// Jobs is told about the end of tasks with conditions ([task.Conditions]), so that their jobs end
	// at once. A jobs.Service implements it. nil: the jobs end when their runner next reads the
	// records.
	Jobs TaskEnder
	// Queues are the queues to consume. Default: router.DefaultQueue with default settings. See
	// [QueuesOf].
	//
	// Do not use a queue named like another one with ".suspects" appended: older versions kept side
	// queues under such names, and the consumer empties them.
	Queues map[string]QueueConfig
	// Polls are sets of workers that several queues share in strict order. Each other queue has its
	// own workers.
	Polls []Poll
	// Settings stores pauses and limits of queues and tasks, the state of breakers, and the queues of
	// Group, see package settings. Run fetches no tasks before it has read the settings, and then
	// follows their changes. If the store is unreachable later, the last settings apply. nil: the
	// consumer has no stored settings.
	Settings settings.Store
	// Limiter enforces the limits of Settings over all consumers that share it. nil: each consumer
	// enforces them alone.
	Limiter limit.Limiter
	// Group names the group of consumers to which this one belongs. It serves the queues of the group
	// in Settings beside those of Queues. "": none.
	Group string
	// Breakers pause tasks by their names when too many attempts fail. They need Settings.
	Breakers map[string]Breaker
	// Defaults is the static metadata of tasks in this process, the lowest layer.
	Defaults task.Metadata
	// Hooks are called when something happens to the consumer or to a task.
	Hooks Hooks
	// Admit decides whether a task may start now. The functions are called in order for each start.
	// After one has refused, the next ones are not called. See [middleware.Admit].
	Admit []middleware.Admit
	// Middleware wraps every handler, the first element outermost. Time limits apply inside of it.
	// Panics are recovered outside of it.
	Middleware []middleware.Middleware
	// Pool runs the handlers. nil: each worker runs its handlers on its own goroutine.
	Pool Pool
	// ShutdownTimeout limits how long a stop waits for running tasks before it cancels their contexts.
	// Default: 30s. Negative: no wait.
	ShutdownTimeout time.Duration
	// Control lets clients query, scale, pause and stop this consumer over a bus, from when it
	// consumes until Run returns. nil: no client can. Control.Bus is required; open.Options.Control
	// creates one and a bus for replies, and open.Swarm.Consumer sets both here. Control.Logger
	// defaults to the Logger of this Config.
	Control *control.Config
	// ControlServices are further servers of commands, such as those of other systems. Each serves
	// commands as long as the server of Control does.
	ControlServices []control.Service
	// Logger receives the messages about errors that no caller receives. Default: slog.Default().
	Logger *slog.Logger
	// Metrics counts tasks and events. nil: the consumer counts in Metrics of its own.
	Metrics *middleware.Metrics
	// Tuning holds limits and times that few programs change.
	Tuning Tuning
}

// QueueConfig configures how one queue is consumed. The zero value is usable.
type QueueConfig struct {
	// Workers is the number of handlers that run at once. Default: runtime.GOMAXPROCS.
	Workers int
	// Autoscale changes the number of workers by the number of waiting tasks. nil: only Scale changes
	// it.
	Autoscale *Autoscale
	// PrefetchMultiplier times the number of workers is the prefetch: how many unsettled tasks the
	// consumer may hold. Default: Tuning.PrefetchMultiplier. If that is 0 too, the prefetch follows
	// the work. It is 4 for each worker, or about 50 ms of short tasks, at most 256. If all workers
	// have long tasks, the consumer gives the others back within 100 ms and holds no more. Those of
	// other levels and lanes ([broker.Divider]) it gives back after a second.
	PrefetchMultiplier int
	// Prefetch sets the prefetch directly, whatever Workers is. 0: PrefetchMultiplier applies.
	// Negative: no limit.
	Prefetch int
	// Lease is the time after which the broker delivers tasks of a silent process again. Only brokers
	// with leases use it. Default: the adapter's own.
	Lease time.Duration
	// Task is the name of the task that runs messages without a task name, such as raw bytes. The body
	// of such a message is the argument, unchanged where the task takes []byte. Default: none, such
	// messages are dead-lettered.
	//
	// With a Task, a message is an envelope only if one of these says so:
	//
	//   - a content type of an envelope
	//   - the header of serializer.RawFormat
	//   - in JSON, an "id" that equals the message id
	Task string
	// Meta is this consumer's metadata for tasks of the queue. It overrides Defaults. A task's
	// definition overrides it.
	Meta task.Metadata
	// Levels are the queue's priority levels: upper bounds in ascending order. Use the same values as
	// the producers.
	Levels []int
	// Fair starts tasks in turns over fairness keys, see [task.WithFairnessKey].
	Fair bool
	// Bounds limit the tasks that all consumers hold of a Fair queue, and the rate of their starts.
	// With a Max the default prefetch is Workers. [settings.BoundQueue] changes them.
	Bounds broker.Bounds
	// Floor is the share of starts that less urgent levels with tasks get, at most 0.5.
	Floor float64
	// Breaker pauses the queue when too many attempts fail. It needs Config.Settings. nil: no
	// breaker.
	Breaker *Breaker
}

// QueuesOf returns a map with default settings for every queue that r may name. Use it as
// Config.Queues.
func QueuesOf(r router.Router) map[string]QueueConfig {
	qs := make(map[string]QueueConfig)
	for _, name := range r.Queues() {
		qs[name] = QueueConfig{}
	}
	return qs
}

// complete sets the defaults of c, also of its queues, polls and tuning, and returns the codec of
// c.Wire. An empty Report.NodeID becomes a new name. If the broker advises a prefetch, that is the
// default of the prefetch. If there are problems, it returns a nil codec and all problems, joined.
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
		c.Tuning.PrefetchMultiplier = cmp.Or(c.Tuning.PrefetchMultiplier, a.PrefetchPerWorker())
	}
	c.ShutdownTimeout = cmp.Or(c.ShutdownTimeout, DefaultShutdownTimeout)
	errs = append(errs, c.Tuning.complete(), report.Check(&c.Report))
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.Metrics == nil {
		c.Metrics = new(middleware.Metrics)
	}
	errs = append(errs, c.completeQueues(), c.checkSettings())
	codec, err := wire.New(c.Wire)
	if err := errors.Join(append(errs, err)...); err != nil {
		return nil, fmt.Errorf("swarmiji: consumer: %w", err)
	}
	return codec, nil
}

// completeQueues replaces c.Queues and c.Polls by copies with all defaults. It adds the queues of
// polls to c.Queues, and router.DefaultQueue if no queue is set. Returns all problems, joined. A
// name of another queue plus sideSuffix is one too: older versions kept tasks there.
func (c *Config) completeQueues() error {
	if len(c.Queues) == 0 && len(c.Polls) == 0 {
		c.Queues = map[string]QueueConfig{router.DefaultQueue: {}}
	}
	var errs []error
	queues := make(map[string]QueueConfig, len(c.Queues)) // do not change the caller's map
	maps.Copy(queues, c.Queues)
	errs = append(errs, c.completePolls(queues))
	for name, q := range queues {
		errs = append(errs, c.completeQueue(name, &q))
		if _, exists := queues[name+sideSuffix]; exists {
			errs = append(errs, fmt.Errorf("config: Queues: older versions gave the name %q to the side queue of %q, and consumers of %[2]q empty it; choose another name",
				name+sideSuffix, name))
		}
		queues[name] = q
	}
	c.Queues = queues
	return errors.Join(errs...)
}

// completeQueue sets the defaults of q. With Autoscale, Workers is moved into its limits. Workers
// defaults to GOMAXPROCS, PrefetchMultiplier to that of Tuning. Returns all problems, joined.
func (c *Config) completeQueue(name string, q *QueueConfig) error {
	var errs []error
	bad := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("config: Queues: %q: "+format, append([]any{utf.Cut(name, 128)}, args...)...))
	}
	if err := task.CheckName(name); err != nil {
		errs = append(errs, fmt.Errorf("config: Queues: %w", err))
	}
	if q.Autoscale != nil {
		var err error
		if q.Autoscale, err = q.Autoscale.complete(); err != nil {
			bad("Autoscale: %w", err)
		}
		q.Workers = min(max(q.Workers, q.Autoscale.Min), q.Autoscale.Max)
	}
	q.Workers = cmp.Or(q.Workers, defaultWorkers())
	q.PrefetchMultiplier = intake.Multiplier(q.PrefetchMultiplier, c.Tuning.PrefetchMultiplier, q.Bounds)
	if err := intake.CheckClaims(q.Fair, q.Bounds, q.Floor); err != nil {
		bad("%w", err)
	}
	if q.Workers < 0 {
		bad("Workers is %d; it must not be negative", q.Workers)
	}
	if q.PrefetchMultiplier < 0 {
		bad("PrefetchMultiplier is %d; it must not be negative", q.PrefetchMultiplier)
	}
	if err := q.Meta.Check(); err != nil {
		bad("%w", err)
	}
	if q.Breaker != nil {
		if c.Settings == nil {
			bad("Breaker: needs Config.Settings")
		}
		if err := q.Breaker.internal().Check(); err != nil {
			bad("Breaker: %w", err)
		}
	}
	return errors.Join(errs...)
}

// defaultWorkers returns GOMAXPROCS, the number of workers of a queue or a poll that sets none.
func defaultWorkers() int { return runtime.GOMAXPROCS(0) }

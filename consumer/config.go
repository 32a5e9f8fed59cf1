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

// Defaults of a Config.
const (
	DefaultPrefetchMultiplier = 4
	DefaultShutdownTimeout    = 30 * time.Second
	DefaultKillGrace          = 5 * time.Second
	DefaultMaxCrashes         = 3
	DefaultAbsentAfter        = 30 * time.Second
	DefaultUnknownRetries     = 5
	DefaultUnknownDelay       = 5 * time.Second
	DefaultStoreRetry         = time.Minute
	DefaultQueueLook          = 15 * time.Second
)

// minAbsent is the least AbsentAfter.
const minAbsent = 100 * time.Millisecond

// Config configures a consumer. Only Broker must be set. The consumer does not close what it is given.
type Config struct {
	Broker broker.Broker
	// Results is where results go. nil: results of tasks that want one are dropped, and a warning says so once.
	Results resultstore.ResultStore
	// Stores are further stores, by the name that a task's ResultStore metadata gives.
	Stores map[string]resultstore.ResultStore
	// Gatherer gathers the members of groups. nil: Results, where that is one; without any, what follows a group fails.
	Gatherer resultstore.Gatherer
	// GroupWait is how long a group that is not decided waits for the end of its next member. Then it is forgotten: what
	// follows it does not run, and the futures of the process that submitted it end with [task.ErrGroupForgotten]. No record
	// is written, so that others wait on. All consumers need the same. 0: 30 days, [resultstore.DefaultGroupWait].
	GroupWait time.Duration
	// Events gets the events of tasks, and of this consumer. nil: none are sent. Tasks never wait for it, and what it loses
	// is counted (Metrics.Dropped).
	Events events.EventBus
	// HeartbeatEvery is how often this consumer tells that it is alive (worker-heartbeat; worker-online comes before, worker-offline
	// last, when Run has come to its end).
	// 0: 2 s. Negative: no events about itself. Less than 10 ms is refused. Nothing is sent without Events.
	HeartbeatEvery time.Duration
	// HeartbeatFields gives further fields of each heartbeat, such as a version or a zone; those that have the name of a
	// standard field are left out. It runs beside the tasks, one call at a time, and a heartbeat waits for it. nil: none.
	HeartbeatFields func() map[string]any
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
	// not only when the runner that sent them looks for their records. A jobs.Service is one. nil: nobody hears.
	Jobs TaskEnder
	// Queues are the queues to consume. nil: router.DefaultQueue with default settings. See [QueuesOf].
	// Consumers of a queue also empty the queue of its name and ".suspects", which older versions
	// may have left: use no such name.
	Queues map[string]QueueConfig
	// Polls are sets of workers that several queues share, in strict order. Other queues have workers of their own.
	Polls []Poll
	// Serializers and Formats are understood, in order. nil: msgpack, JSON and raw bytes; Compact, JSON, Raw.
	Serializers []serializer.Serializer
	Formats     []serializer.Format
	// Sealer opens tasks and seals results, successors and retries, see docs/security.md. nil: what is sealed goes to the
	// dead letters.
	Sealer serializer.Sealer
	// AcceptPlain takes tasks that are not sealed too, while producers are being moved to sealing. False: with a Sealer, such
	// a task goes to the dead letters.
	AcceptPlain bool
	// Compression says how arguments and results are compressed. The zero value: not at all. What is compressed with zstd, s2 or
	// gzip is always read.
	Compression serializer.Compression
	// Defaults is the static configuration of tasks, the lowest layer of metadata of this process.
	Defaults task.Metadata
	// Hooks are called when something happens to the consumer or to a task.
	Hooks Hooks
	// Admit decides whether a task may start now, in this order, for each start; see [middleware.Admit]. A start that one refuses
	// is not asked of the next ones.
	Admit []middleware.Admit
	// Middleware wraps every handler, the first outermost. Time limits lie inside it; a panic is caught around it.
	Middleware []middleware.Middleware
	// NodeID names this consumer in events and records. "": made of host, process and chance.
	NodeID string
	// PrefetchMultiplier times the workers of a queue is its prefetch, where the queue says nothing
	// else. 0: 4, or what the broker advises ([broker.PrefetchAdviser]): 1 on hworker's keys.
	PrefetchMultiplier int
	// Pool runs the handlers. nil: the consumer's own goroutines, one for each worker.
	Pool Pool
	// ShutdownTimeout is how long a stop waits for running tasks before it cancels their contexts. 0: 30 s. Negative: no wait.
	ShutdownTimeout time.Duration
	// KillGrace is how long a stop waits for handlers whose context was cancelled before it leaves them behind. 0: 5 s.
	KillGrace time.Duration
	// MaxCrashes is after how many starts that ended their process a task is given up. 0: 3, which is also the least: the
	// first start is not noted, and only a run alone in its process tells a task that ends its process from one that ran
	// beside it. Negative: never. A broker that keeps no notes of starts ([broker.Witness]) never gives up a task for this.
	MaxCrashes int
	// AbsentAfter is how long a consumer process must show no sign of life before a task that it had started, and that comes
	// again, counts as having ended it; so long that task waits. It should be longer than a lost connection takes to come
	// back. 0: 30 s. Less than 100 ms is refused.
	AbsentAfter time.Duration
	// UnknownRetries is how often a task without a handler is put aside before it is given up, so that a consumer that
	// knows it may come. 0: 5. Negative: given up at once.
	UnknownRetries int
	// UnknownDelay is how long it is put aside the first time; each further time is twice as long. 0: 5 s.
	UnknownDelay time.Duration
	// StoreRetry is how long settling a task is repeated while result store or broker fail, before the task is given back;
	// of what follows the task each part is repeated for as long. 0: 1 min.
	StoreRetry time.Duration
	// MaxBody and MaxResult are the largest message and result in bytes. 0: 1 MiB.
	MaxBody, MaxResult int
	// EventPayloads puts previews of arguments and results, at most 1 KiB, into events. False: only their type and size,
	// since they may hold secrets. Those of tasks without a handler here, and those whose types have fields tagged
	// `task:"secret"`, are never shown. With a Sealer it also decides whether the texts of errors are.
	EventPayloads bool
	// EventPreview makes these previews instead: it shows, hides or cuts what it wants. It runs on the way of every task, so it
	// must be quick; after a panic type and size are shown. nil: EventPayloads decides.
	EventPreview func(events.Payload) string
	// Control lets this consumer be commanded over a bus: asked, scaled, paused, stopped. nil: nobody can. Its Bus has to be
	// set; open.Options.Control makes one. Its Logger is this configuration's where it has none.
	Control *control.Config
	// Logger gets what nobody is returned. nil: slog.Default().
	Logger *slog.Logger
	// Metrics counts. nil: counted and not registered.
	Metrics *middleware.Metrics
	// QueueLook is how often the broker is asked for the lengths of the queues, for Metrics. 0: every 15 s. Negative, or
	// without Metrics: never.
	QueueLook time.Duration
}

// QueueConfig says how one queue is consumed. The zero value is usable.
type QueueConfig struct {
	// Workers is how many handlers run at once. 0: runtime.GOMAXPROCS.
	Workers int
	// Autoscale changes the number of workers by what waits. nil: it stays, unless Scale changes it.
	Autoscale *Autoscale
	// PrefetchMultiplier times the workers is how many unsettled tasks may be held, also after Scale: 1 has each worker hold its
	// task and no other, which shares long tasks fairly between processes. 0: Config.PrefetchMultiplier.
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
	if c.NodeID == "" {
		c.NodeID = nodeid.New()
	} else if err := task.CheckName(c.NodeID); err != nil {
		errs = append(errs, fmt.Errorf("config: NodeID: %w", err))
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
		setDefault(&c.PrefetchMultiplier, a.PrefetchPerWorker())
	}
	setDefault(&c.PrefetchMultiplier, DefaultPrefetchMultiplier)
	setDefault(&c.ShutdownTimeout, DefaultShutdownTimeout)
	setDefault(&c.KillGrace, DefaultKillGrace)
	setDefault(&c.MaxCrashes, DefaultMaxCrashes)
	setDefault(&c.AbsentAfter, DefaultAbsentAfter)
	if c.AbsentAfter < minAbsent {
		errs = append(errs, fmt.Errorf("config: AbsentAfter is %s, at least %s", c.AbsentAfter, minAbsent))
	}
	setDefault(&c.UnknownRetries, DefaultUnknownRetries)
	setDefault(&c.UnknownDelay, DefaultUnknownDelay)
	setDefault(&c.StoreRetry, DefaultStoreRetry)
	setDefault(&c.QueueLook, DefaultQueueLook)
	setDefault(&c.MaxResult, wire.DefaultMaxBody)
	errs = append(errs, report.CheckEvery(c.HeartbeatEvery))
	if c.GroupWait < 0 {
		errs = append(errs, fmt.Errorf("config: GroupWait is %s", c.GroupWait))
	}
	if c.PrefetchMultiplier < 0 {
		errs = append(errs, fmt.Errorf("config: PrefetchMultiplier is %d", c.PrefetchMultiplier))
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.Metrics == nil {
		c.Metrics = middleware.NewMetrics(nil)
	}
	errs = append(errs, c.completeQueues())
	codec, err := wire.New(wire.Config{
		Serializers: c.Serializers, Formats: c.Formats, MaxBody: c.MaxBody,
		Sealer: c.Sealer, AcceptPlain: c.AcceptPlain, Compression: c.Compression,
	})
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
		setDefault(&q.PrefetchMultiplier, c.PrefetchMultiplier)
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

package producer

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/internal/nodeid"
	"github.com/swarmiji/swarmiji/internal/report"
	"github.com/swarmiji/swarmiji/internal/wire"
	"github.com/swarmiji/swarmiji/middleware"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/router"
	"github.com/swarmiji/swarmiji/serializer"
	"github.com/swarmiji/swarmiji/task"
)

// DefaultTimeout bounds a Submit whose context has no deadline.
const DefaultTimeout = 10 * time.Second

// Config configures a producer. Only Broker must be set. The producer does not close what it is given.
type Config struct {
	Broker broker.Broker
	// Results is where results come back. nil: futures answer [task.ErrNoResult].
	Results resultstore.ResultStore
	// Stores are further stores, by the name that a task's ResultStore metadata gives.
	Stores map[string]resultstore.ResultStore
	// Gatherer is what the consumers gather groups with, if that is not Results. Without one a
	// workflow with groups is refused. It is asked whether the groups that futures wait for are
	// forgotten.
	Gatherer resultstore.Gatherer
	// Claimer keeps the keys of unique tasks ([task.WithUnique]), if that is not Results: all producers need the same. nil:
	// Results, where that is one; without any, such tasks are refused.
	Claimer resultstore.Claimer
	// Events gets task-sent events, and those of this producer. nil: none are sent. Submit never waits for it, and what it
	// loses is counted (Metrics.Dropped).
	Events events.EventBus
	// Report is what this producer tells of itself and of its tasks. Results are sent to its NodeID,
	// with or without Events.
	Report events.Report
	// Wire is how tasks become messages and results are read: as the consumers have it.
	Wire serializer.Wire
	// Router picks queues. nil: all tasks go to router.DefaultQueue.
	Router router.Router
	// Queues describes queues that are declared with priority levels, besides those the Router names.
	Queues []broker.Queue
	// Defaults is the static configuration of tasks, the lowest layer of metadata. It travels with each task.
	Defaults task.Metadata
	// Hooks are called before and after a task is submitted, around Middleware.
	Hooks middleware.HookSet
	// Middleware wraps every submission, the first outermost.
	Middleware []middleware.SendMiddleware
	// Jobs keeps tasks with conditions ([task.Conditions]) as jobs until a runner.Runner of their queue sends them, in this process or in another.
	// A jobs.Service is one. The runner may have any producer over the same broker for its Submit, and Results, which has to be a store that can be asked later, not one of reply
	// queues: where RabbitMQ carries the tasks, the database of the jobs can keep the results. Such a result is kept for two days at least. Consumers should have runner.Current
	// among their middleware, and the jobs as their Config.Jobs. nil: such tasks are refused.
	Jobs Keeper
	// Timeout bounds a Submit whose context has no deadline. 0: DefaultTimeout. Negative: no bound.
	Timeout time.Duration
	// Logger gets what nobody is returned. nil: slog.Default().
	Logger *slog.Logger
	// Metrics counts. nil: counted and not registered.
	Metrics *middleware.Metrics
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
	if c.Router == nil {
		c.Router = router.Static(router.DefaultQueue)
	}
	for _, q := range c.Router.Queues() {
		if err := task.CheckName(q); err != nil {
			errs = append(errs, fmt.Errorf("config: Router: queue: %w", err))
		}
	}
	for _, q := range c.Queues {
		if err := task.CheckName(q.Name); err != nil {
			errs = append(errs, fmt.Errorf("config: Queues: %w", err))
		}
	}
	for name, s := range c.Stores {
		if s == nil {
			errs = append(errs, fmt.Errorf("config: Stores: store %q is nil", name))
		}
	}
	if err := c.Defaults.Check(); err != nil {
		errs = append(errs, fmt.Errorf("config: Defaults: %w", err))
	}
	errs = append(errs, report.CheckEvery(c.Report.HeartbeatEvery), c.endsRecorded())
	if c.Timeout == 0 {
		c.Timeout = DefaultTimeout
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.Metrics == nil {
		c.Metrics = middleware.NewMetrics(nil)
	}
	codec, err := wire.New(c.Wire)
	if err := errors.Join(append(errs, err)...); err != nil {
		return nil, fmt.Errorf("swarmiji: producer: %w", err)
	}
	return codec, nil
}

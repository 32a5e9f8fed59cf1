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

// DefaultTimeout is the default of Config.Timeout.
const DefaultTimeout = 10 * time.Second

// Config configures a producer. Only Broker is required. The producer does not close the broker,
// stores and buses of its configuration.
type Config struct {
	Broker broker.Broker
	// Outbox stores the tasks of [Producer.SubmitTx] in the caller's database, from which a relay
	// sends them to the broker. nil: the broker itself stores them, if it is a [broker.TxPublisher].
	Outbox broker.TxPublisher
	// Results is the store from which futures get results. nil: futures return [task.ErrNoResult].
	Results resultstore.ResultStore
	// Stores are further result stores. A task chooses one by the name in its ResultStore metadata.
	Stores map[string]resultstore.ResultStore
	// Gatherer is the store with which consumers gather groups, if that is not Results. Without a
	// gatherer a workflow with groups is refused. Futures ask it whether their groups are forgotten.
	Gatherer resultstore.Gatherer
	// Claimer stores the keys of unique tasks ([task.WithUnique]). All producers need the same. nil:
	// Results, if it is a [resultstore.Claimer]. Without a claimer such tasks are refused.
	Claimer resultstore.Claimer
	// Bursts keeps the records of bursts ([task.WithDebounce], [task.WithLatest]). All producers and
	// consumers need the same. nil: Results, if it is a [resultstore.Swapper]. Without one such tasks
	// are refused.
	Bursts resultstore.Swapper
	// Events receives task-sent events and the events of this producer. nil: no events are sent.
	// Submit never waits for the bus; Metrics.Dropped counts lost events.
	Events events.EventBus
	// Report configures which events this producer sends about itself and its tasks. Results are sent
	// to its NodeID, also without Events.
	Report events.Report
	// Wire configures how tasks are encoded and results are decoded. Use the same values as the
	// consumers.
	Wire serializer.Wire
	// Router selects the queues of tasks. nil: router.DefaultQueue for all tasks.
	Router router.Router
	// Queues are declared with their priority levels, in addition to those of the Router.
	Queues []broker.Queue
	// Defaults is the static metadata of tasks, the lowest layer. It travels with each task.
	Defaults task.Metadata
	// Hooks are called before and after a submission, outside of Middleware.
	Hooks middleware.HookSet
	// Middleware wraps every submission, the first element outermost.
	Middleware []middleware.SendMiddleware
	// Jobs stores tasks with conditions ([task.Conditions]) as jobs until a runner.Runner of their
	// queue sends them, in this or another process. A jobs.Service implements it. nil: such tasks are
	// refused.
	//
	// The runner needs a producer over the same broker as its Submit, and Results. Results must keep
	// records, so a store of reply queues is refused. With RabbitMQ, for example, the database of the
	// jobs can keep the results. These are kept for at least two days. Consumers should use
	// runner.Current as a middleware, and the jobs as Config.Jobs.
	Jobs JobCreator
	// Timeout limits a Submit whose context has no deadline. Default: 10s. Negative: no limit.
	Timeout time.Duration
	// Logger receives the messages about errors that no caller receives. Default: slog.Default().
	Logger *slog.Logger
	// Metrics counts tasks and events. nil: the producer counts in Metrics of its own.
	Metrics *middleware.Metrics
}

// complete sets the defaults of c and returns the codec of c.Wire. If there are problems, it
// returns a nil codec and all problems, joined.
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
	errs = append(errs, report.Check(&c.Report), c.checkResults())
	if c.Timeout == 0 {
		c.Timeout = DefaultTimeout
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.Metrics == nil {
		c.Metrics = new(middleware.Metrics)
	}
	codec, err := wire.New(c.Wire)
	if err := errors.Join(append(errs, err)...); err != nil {
		return nil, fmt.Errorf("swarmiji: producer: %w", err)
	}
	return codec, nil
}

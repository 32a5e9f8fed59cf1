package celery

import (
	"context"
	"fmt"
	"maps"

	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/middleware"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/router"
	"github.com/swarmiji/swarmiji/task"
)

// ownStore is the name of Celery's result store in a consumer whose own tasks use another one.
const ownStore = "celery"

// Producer returns a producer whose tasks any worker of the queues can run, in Python or Go. The
// swarm's Broker, Results and Wire are used. If Router or Logger of c is nil, the producer uses
// Options.Queue and Options.Logger. Close the producer before the swarm.
//
// Returns the errors of producer.New, and an error if c sets Broker, Results or Wire.Formats.
func (s *Swarm) Producer(c producer.Config) (*producer.Producer, error) {
	if c.Broker != nil || c.Results != nil || len(c.Wire.Formats) > 0 {
		return nil, fmt.Errorf("celery: the swarm sets Broker, Results and Wire of a producer")
	}
	c.Broker, c.Results, c.Wire = s.Broker, s.Results, s.Wire
	if c.Events == nil {
		c.Events = s.Events
	}
	if c.Router == nil {
		c.Router = router.Static(s.options.Queue)
	}
	if c.Logger == nil {
		c.Logger = s.options.Logger
	}
	return producer.New(c)
}

// Consumer returns a consumer of Celery's queues, which Python workers may consume too. It reads
// Celery's messages and those of this module. The swarm's Broker and Wire are used, and
// Options.Queue and Options.Logger if c has no Queues or Logger.
//
//   - Results of Celery's tasks go to the swarm's store. Results of other tasks go to c.Results, or
//     to the swarm's store if it is nil.
//   - A task without a handler fails at once and is dead-lettered, as in Celery. A positive
//     Tuning.UnknownRetries delays it first.
//
// End its Run before the swarm is closed. Returns the errors of consumer.New, and an error if c
// sets Broker, Wire.Formats or Stores["celery"].
func (s *Swarm) Consumer(c consumer.Config) (*consumer.Consumer, error) {
	if c.Broker != nil || len(c.Wire.Formats) > 0 || c.Stores[ownStore] != nil {
		return nil, fmt.Errorf("celery: the swarm sets Broker, Wire and the store %q of a consumer", ownStore)
	}
	c.Broker, c.Wire = s.Broker, s.Wire
	if c.Results == nil {
		c.Results = s.Results
	} else {
		c.Wire = makeWire(s.options.Msgpack, ownStore)
		stores := map[string]resultstore.ResultStore{ownStore: s.Results}
		maps.Copy(stores, c.Stores)
		c.Stores = stores
		if c.Gatherer == nil {
			c.Gatherer = resultstore.GathererOf(nil, s.Results)
		}
	}
	if len(c.Queues) == 0 {
		c.Queues = map[string]consumer.QueueConfig{s.options.Queue: {}}
	}
	if c.Logger == nil {
		c.Logger = s.options.Logger
	}
	if c.Tuning.UnknownRetries == 0 {
		c.Tuning.UnknownRetries = -1
	}
	if err := s.monitored(&c); err != nil {
		return nil, err
	}
	if s.options.TrackStarted {
		c.Middleware = append([]middleware.Middleware{trackStarted}, c.Middleware...)
	}
	return consumer.New(c)
}

// trackStarted stores the state STARTED of a task before its handler runs. A failure to store it is
// ignored, as for other reports of progress.
func trackStarted(next task.Handler) task.Handler {
	return task.HandlerFunc(func(ctx context.Context, r *task.Request) (any, error) {
		task.Progress(ctx, 0, 0, "")
		return next.Handle(ctx, r)
	})
}

package open

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/events/liveness"
	"github.com/swarmiji/swarmiji/internal/nodeid"
	"github.com/swarmiji/swarmiji/limit"
	"github.com/swarmiji/swarmiji/middleware"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/revoke"
)

// shared holds the resources that the producers and consumers of a Swarm share. The zero value is
// ready.
type shared struct {
	mu       sync.Mutex
	closed   bool
	list     *revoke.List
	stop     context.CancelFunc // stops the observer; nil before it starts
	observer sync.WaitGroup
}

var errClosed = errors.New("open: the Swarm is closed")

// Producer returns a producer of the swarm. If Broker, Results, Events or Logger of c is nil, the
// swarm's is used. A missing Report.NodeID is generated. Returns an error if the swarm is closed,
// and those of producer.New.
//
// The first call of Producer or Consumer starts an observer, which runs until Close. It sends
// worker-offline events for nodes that are silent for two minutes, see package liveness.
//
// Close the producer before the swarm. Safe for concurrent use.
func (s *Swarm) Producer(c producer.Config) (*producer.Producer, error) {
	setNil(&c.Broker, s.Broker)
	setNil(&c.Results, s.Results)
	setNil(&c.Events, s.Events)
	if c.Report.NodeID == "" {
		c.Report.NodeID = nodeid.New()
	}
	setNil(&c.Logger, s.options().Logger)
	p, err := producer.New(c)
	if err != nil {
		return nil, err
	}
	if err := s.observe(c.Report.NodeID); err != nil {
		return nil, errors.Join(err, p.Close(context.Background()))
	}
	return p, nil
}

// Consumer returns a consumer of the swarm. If Broker, Results, Events, Logger, Revocations,
// Settings or Limiter of c is nil, the swarm's is used. So the consumer skips revoked tasks, and
// follows stored pauses and limits. A missing Report.NodeID is
// generated. It starts an observer as Producer does.
//
// Before the checks of c.Admit it asks the Limiter for the permits of Options.Limits. If c.Control
// has no Bus, a copy of c.Control gets the swarm's Control and Replies.
//
// Returns an error if the swarm is closed, and those of consumer.New. End its Run before the swarm
// is closed. Safe for concurrent use.
func (s *Swarm) Consumer(c consumer.Config) (*consumer.Consumer, error) {
	setNil(&c.Broker, s.Broker)
	setNil(&c.Results, s.Results)
	setNil(&c.Events, s.Events)
	if c.Report.NodeID == "" {
		c.Report.NodeID = nodeid.New()
	}
	setNil(&c.Logger, s.options().Logger)
	setNil(&c.Settings, s.Settings)
	setNil(&c.Limiter, s.Limiter)
	if limits := s.options().Limits; len(limits) > 0 {
		admit, err := limit.Admit(limit.Config{Limiter: s.Limiter, Tasks: limits, Logger: c.Logger})
		if err != nil {
			return nil, fmt.Errorf("open: Limits: %w", err)
		}
		c.Admit = append([]middleware.Admit{admit}, c.Admit...)
	}
	var err error
	if c.Revocations == nil && s.Revocations != nil {
		if c.Revocations, err = s.revoked(c.Report.NodeID); err != nil {
			return nil, err
		}
	}
	if c.Control != nil {
		with := *c.Control // do not change the caller's value
		if with.Bus == nil {
			setNil(&with.Replies, s.Replies)
		}
		setNil(&with.Bus, s.Control)
		c.Control = &with
	}
	con, err := consumer.New(c)
	if err != nil {
		return nil, err
	}
	if err := s.observe(c.Report.NodeID); err != nil {
		return nil, err
	}
	return con, nil
}

// setNil sets *v to otherwise if *v is its zero value.
func setNil[T comparable](v *T, otherwise T) {
	var zero T
	if *v == zero {
		*v = otherwise
	}
}

func (s *Swarm) options() *Options { return &s.targets.broker.options }

// revoked returns the list of revocations that all consumers share. The first call creates it, with
// the given node id, on the bus s.Revocations. Returns errClosed after Close. It takes s.shared.mu.
func (s *Swarm) revoked(node string) (*revoke.List, error) {
	s.shared.mu.Lock()
	defer s.shared.mu.Unlock()
	if s.shared.closed {
		return nil, errClosed
	}
	if s.shared.list == nil {
		list, err := revoke.New(revoke.Config{Events: s.Revocations, NodeID: node, Logger: s.options().Logger})
		if err != nil {
			return nil, fmt.Errorf("open: %w", err)
		}
		s.shared.list = list
	}
	return s.shared.list, nil
}

// observe starts the observer at its first call, with the given node id, in a goroutine that ends
// with Close. Later calls do nothing. Returns errClosed after Close. It takes s.shared.mu.
func (s *Swarm) observe(node string) error {
	s.shared.mu.Lock()
	defer s.shared.mu.Unlock()
	if s.shared.closed {
		return errClosed
	}
	if s.shared.stop != nil || s.Events == nil {
		return nil
	}
	o, err := liveness.New(liveness.Config{Bus: s.Events, NodeID: node, Logger: s.options().Logger})
	if err != nil {
		return fmt.Errorf("open: %w", err)
	}
	ctx, stop := context.WithCancel(context.Background())
	s.shared.stop = stop
	// Run ends when the bus is closed, which is not an error here
	s.shared.observer.Go(func() { _ = o.Run(ctx) })
	return nil
}

// close stops the observer and closes the list of revocations. It waits for both; ctx limits only
// the list. It returns the error of the list. Afterwards Producer and Consumer return errClosed. It
// takes h.mu.
func (h *shared) close(ctx context.Context) error {
	h.mu.Lock()
	h.closed = true
	list, stop := h.list, h.stop
	h.mu.Unlock()
	if stop != nil {
		stop()
		h.observer.Wait() // the observer limits its own end
	}
	if list == nil {
		return nil
	}
	return list.Close(ctx)
}

// limiter constructs the limiter of the first part whose server supports limits, in the order of
// distinct. Limits in memory count only if the broker is in memory. Without such a part it returns
// nil, or ErrUnsupported if the options have Limits.
func (ts *targets) limiter() (limit.Limiter, error) {
	for _, t := range ts.distinct() {
		// limits in memory suit only tasks in this process
		if t.parts.Limiter != nil && (t == ts.broker || t.Scheme.Place != PlaceNone) {
			return made(t.limiter())
		}
	}
	if len(ts.broker.options.Limits) > 0 {
		return nil, fmt.Errorf("%w: Limits need a part in Redis or a SQL database, such as the results, or mem://", broker.ErrUnsupported)
	}
	return nil, nil
}

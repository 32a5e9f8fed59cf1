package tasktest

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"testing/synctest"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/middleware"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/task"
)

// Consumer is a consumer that runs in a Swarm, as a process of its own that can crash.
type Consumer struct {
	*consumer.Consumer

	s       *Swarm
	process *process
	ended   chan struct{}
	err     error // of Run; read it after ended

	mu      sync.Mutex
	crashAt map[string]Point // by the name of a task
	batched map[string]bool  // names of tasks with a batch handler
}

// consumerKey is the key of the *Consumer in the context of a handler.
type consumerKey struct{}

// Start starts a consumer with a configuration and handlers such as the program's, and returns when
// it consumes. Broker, Results, Events, Revocations and Logger of c that are nil are the swarm's.
// It sends no heartbeats unless c says so. A nil register registers nothing. An error in c or from
// register fails the test. The swarm stops the consumer.
func (s *Swarm) Start(c consumer.Config, register func(task.Registrar) error) *Consumer {
	s.helper()
	made := s.prepare(c)
	if register != nil {
		if err := register(registrar{made}); err != nil {
			s.fatalf("tasktest: register handlers: %v", err)
		}
	}
	made.run()
	return made
}

// prepare makes a consumer that does not run yet.
func (s *Swarm) prepare(c consumer.Config) *Consumer {
	s.helper()
	p := s.newProcess()
	if err := p.read(c.Wire); err != nil {
		s.fatalf("tasktest: consumer: %v", err)
	}
	setNil(&c.Broker, broker.Broker(p))
	setNil(&c.Results, resultstore.ResultStore(p.results))
	setNil(&c.Events, events.EventBus(p.bus))
	setNil(&c.Revocations, s.list)
	setNil(&c.Logger, s.log)
	quiet(&c.Report)
	inner, err := consumer.New(c)
	if err != nil {
		s.fatalf("tasktest: consumer: %v", err)
	}
	made := &Consumer{Consumer: inner, s: s, process: p, ended: make(chan struct{}), crashAt: map[string]Point{}, batched: map[string]bool{}}
	p.beforeSettle = func(m *broker.Message) {
		if e, _, err := p.codec.Decode(m); err == nil && made.reached(BeforeAck, e.Name) {
			made.Crash()
		}
	}
	return made
}

// run starts the consumer and returns when it consumes, or has failed to.
func (c *Consumer) run() {
	c.s.mu.Lock()
	c.s.consumers = append(c.s.consumers, c)
	c.s.mu.Unlock()
	go func() {
		defer close(c.ended)
		c.err = c.Run(context.WithValue(context.Background(), consumerKey{}, c))
	}()
	if c.s.bubble {
		synctest.Wait() // in no time
	}
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !c.Stats().Running {
		select {
		case <-c.ended:
			if !c.Crashed() {
				c.s.fatalf("tasktest: the consumer does not run: %v", c.err)
			}
			return
		case <-tick.C:
		}
	}
}

// failure returns the error of a consumer that has ended, unless it crashed.
func (c *Consumer) failure() error {
	<-c.ended
	if c.Crashed() {
		return nil
	}
	return c.err
}

// registrar wraps handlers on their way to the consumer.
type registrar struct{ c *Consumer }

// Register implements task.Registrar.
func (r registrar) Register(name string, h task.Handler, defaults task.Metadata) error {
	if h == nil {
		return r.c.Register(name, h, defaults)
	}
	return r.c.Register(name, r.c.watch(h), defaults)
}

// CheckBatch implements task.BatchRegistrar.
func (r registrar) CheckBatch(name, queue string, most int) error {
	r.c.mu.Lock()
	r.c.batched[name] = true
	r.c.mu.Unlock()
	return r.c.CheckBatch(name, queue, most)
}

// watch is h as a handler that is noted, may crash, and must heed its context. Like h it is a
// task.Discreet if h is one.
func (c *Consumer) watch(h task.Handler) task.Handler {
	if d, ok := h.(task.Discreet); ok {
		return discreet{Discreet: d, inner: c.watch(d.Unwrap())}
	}
	outer, h := middleware.Split(h)
	var watched task.Handler = task.HandlerFunc(func(ctx context.Context, r *task.Request) (any, error) {
		c.s.handlers.Add(1)
		defer c.s.handlers.Done()
		defer c.s.change()
		c.s.noteStart(c, r)
		if c.reached(BeforeHandler, r.Name) {
			c.Crash()
			runtime.Goexit()
		}
		if !c.isBatched(r.Name) { // a task of a batch waits for the others
			defer c.watchContext(ctx, r.Name)()
		}
		result, err := h.Handle(ctx, r)
		if c.reached(AfterHandler, r.Name) {
			c.Crash()
			runtime.Goexit()
		}
		return result, err
	})
	for _, m := range slices.Backward(outer) { // what lies outside of time limits stays there
		watched = middleware.Outside(m)(watched)
	}
	return watched
}

// isBatched reports whether the named task has a batch handler.
func (c *Consumer) isBatched(name string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.batched[name]
}

type discreet struct {
	task.Discreet
	inner task.Handler
}

// Handle implements task.Handler.
func (d discreet) Handle(ctx context.Context, r *task.Request) (any, error) {
	return d.inner.Handle(ctx, r)
}

// Unwrap implements task.Discreet.
func (d discreet) Unwrap() task.Handler { return d.inner }

// grace limits the time of a handler after the end of its context.
const grace = consumer.DefaultKillGrace

// watchContext fails the test if the handler has not returned grace after the end of ctx. The
// caller calls returned when it has.
func (c *Consumer) watchContext(ctx context.Context, name string) (returned func()) {
	done := make(chan struct{})
	c.s.overdue.Add(1)
	stop := context.AfterFunc(ctx, func() {
		defer c.s.overdue.Done()
		late := time.NewTimer(grace)
		defer late.Stop()
		select {
		case <-done:
		case <-late.C:
			if !c.Crashed() {
				c.s.errorf("tasktest: the handler of %s ignores its context: it goes on %v after the context has ended (%v)", name, grace, context.Cause(ctx))
			}
		}
	})
	return func() {
		close(done)
		if stop() {
			c.s.overdue.Done()
		}
	}
}

// Started returns the attempts of the named task whose handler was called, in order, including
// those of crashed consumers and of Work. Do not change them. Retries distinguishes the attempts of
// a retried task, Deliveries those of a redelivered one.
func (s *Swarm) Started(name string) []*task.Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	var of []*task.Request
	for _, r := range s.started {
		if r.Name == name {
			of = append(of, r)
		}
	}
	return of
}

// noteStart notes an attempt. After too many, which is a loop, it crashes the consumer.
func (s *Swarm) noteStart(c *Consumer, r *task.Request) {
	s.mu.Lock()
	s.started = append(s.started, r)
	s.attempts++
	loop := s.bubble && s.attempts == maxAttempts
	s.mu.Unlock()
	if loop {
		s.errorf("tasktest: %d attempts since the last Drain, DrainAll or Advance, the last one of %s: a loop", maxAttempts, r.Name)
		c.Crash()
	}
}

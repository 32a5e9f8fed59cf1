package tasktest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/broker/membroker"
	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/events/memevents"
	"github.com/swarmiji/swarmiji/internal/nodeid"
	"github.com/swarmiji/swarmiji/middleware"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/resultstore/memresults"
	"github.com/swarmiji/swarmiji/revoke"
	"github.com/swarmiji/swarmiji/schedule/memschedule"
	"github.com/swarmiji/swarmiji/task"
)

// Swarm is a broker, a result store, an event bus and a schedule in memory, with the producers and
// consumers of one test. It is a task.Submitter, a task.BatchSubmitter and a task.WorkSubmitter.
// Make one with Run or New. Safe for concurrent use, but for Drain, DrainAll, Advance and Close,
// which belong to the goroutine of the test.
type Swarm struct {
	// Broker, Results and Events are the test's own connections, for inspections and for values that
	// need them, such as a revoke.Revoker.
	Broker  broker.Broker
	Results resultstore.ResultStore
	Events  events.EventBus

	t      testing.TB // nil: failures panic
	bubble bool
	log    *slog.Logger
	server *membroker.Server
	store  *memresults.Store
	bus    *memevents.Bus
	times  *memschedule.Store
	own    *producer.Producer // of Submit
	list   *revoke.List

	changed  chan struct{}  // capacity 1: a task was settled, or a handler has returned
	watchdog *time.Timer    // nil outside of a bubble
	overdue  sync.WaitGroup // of those that watch for handlers which ignore their context
	handlers sync.WaitGroup // that have not returned

	mu        sync.Mutex
	closed    bool
	sent      []sent
	ids       map[task.ID]bool // of sent
	started   []*task.Request
	seen      Summary             // at the last Summary
	attempts  int                 // since the last call of Drain, DrainAll or Advance
	queues    map[string]struct{} // that were declared, subscribed to or published to
	consumers []*Consumer
	producers []*producer.Producer
	stops     []func() error // of listeners
}

// Run runs fn as a test in a testing/synctest bubble, with a new Swarm that is closed at its end.
// The t of fn is the bubble's: use it in place of the outer one.
func Run(t *testing.T, fn func(t *testing.T, s *Swarm)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { fn(t, New(t)) })
}

// New makes a Swarm that is closed at the end of t. It may be called in a bubble, which is what Run
// does, or outside of one, such as in a benchmark. Outside, time is real time: wait for futures.
// Work, Drain, DrainAll and Advance need a bubble.
//
// An Example function has no t and passes nil. Then a failure panics, and the caller calls Close.
func New(t testing.TB) *Swarm {
	s := &Swarm{
		t: t, bubble: inBubble(), log: slog.Default(), changed: make(chan struct{}, 1), queues: map[string]struct{}{}, ids: map[task.ID]bool{},
		server: membroker.NewServer(membroker.Config{}), store: memresults.New(memresults.Config{}),
		bus: memevents.New(memevents.Config{Retain: revoke.Retention()}),
	}
	if t != nil {
		t.Helper()
		s.log = slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
		t.Cleanup(s.Close)
	}
	s.Broker, s.Results, s.Events = s.server.Connect(), s.store, s.bus
	var err, errs error
	s.times, err = memschedule.New(memschedule.Config{Name: "tasktest"})
	errs = errors.Join(errs, err)
	s.list, err = revoke.New(revoke.Config{Events: s.bus.View(), Logger: s.log})
	if errs = errors.Join(errs, err); errs != nil {
		s.fatalf("tasktest: %v", errs)
	}
	s.own = s.producer(producer.Config{}, true)
	if s.bubble {
		s.watchdog = time.AfterFunc(patience, s.giveUp)
	}
	return s
}

// inBubble reports whether the calling goroutine is in a bubble: outside of one Wait panics.
func inBubble() (yes bool) {
	defer func() { yes = recover() == nil }()
	synctest.Wait()
	return
}

// Producer makes a further producer, with a configuration such as the program's. Broker, Results,
// Events and Logger of c that are nil are the swarm's. It sends no heartbeats unless c says so. An
// error in c fails the test. The swarm closes the producer.
//
// As in production, a submission to a queue that neither c nor a consumer has made is refused with
// broker.ErrNoQueue.
func (s *Swarm) Producer(c producer.Config) *producer.Producer {
	s.helper()
	return s.producer(c, false)
}

func (s *Swarm) producer(c producer.Config, makesQueues bool) *producer.Producer {
	s.helper()
	p := s.newProcess()
	p.makesQueues = makesQueues
	if err := p.read(c.Wire); err != nil {
		s.fatalf("tasktest: producer: %v", err)
	}
	setNil(&c.Broker, broker.Broker(p))
	setNil(&c.Results, resultstore.ResultStore(p.results))
	setNil(&c.Events, events.EventBus(p.bus))
	setNil(&c.Logger, s.log)
	quiet(&c.Report)
	c.Middleware = append([]middleware.SendMiddleware{refuseCrashed}, c.Middleware...)
	made, err := producer.New(c)
	if err != nil {
		s.fatalf("tasktest: producer: %v", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.producers = append(s.producers, made)
	return made
}

// refuseCrashed refuses submissions of a handler after the crash of its consumer. A goroutine
// cannot be killed, but its later actions must have no effect.
func refuseCrashed(next middleware.Sender) middleware.Sender {
	return func(ctx context.Context, queue string, e *task.Envelope) error {
		if c, ok := ctx.Value(consumerKey{}).(*Consumer); ok && c.Crashed() {
			return fmt.Errorf("tasktest: the consumer of this handler has crashed: %w", broker.ErrUnavailable)
		}
		return next(ctx, queue, e)
	}
}

// quiet leaves out heartbeats, which would be most of what happens in days of a bubble.
func quiet(r *events.Report) {
	if r.NodeID == "" {
		r.NodeID = nodeid.New()
	}
	if r.HeartbeatEvery == 0 {
		r.HeartbeatEvery = -1
	}
}

// Submit implements task.Submitter with a producer of the zero configuration. It makes a missing
// queue, so that a test of one part of a program needs no consumer of the others. Summary.Unclaimed
// counts the tasks without a consumer.
func (s *Swarm) Submit(ctx context.Context, c task.Call) (task.Pending, error) {
	return s.own.Submit(ctx, c)
}

// SubmitAll implements task.BatchSubmitter.
func (s *Swarm) SubmitAll(ctx context.Context, calls []task.Call) ([]task.Pending, error) {
	return s.own.SubmitAll(ctx, calls)
}

// SubmitWork implements task.WorkSubmitter.
func (s *Swarm) SubmitWork(ctx context.Context, w task.Work) ([]task.Pending, error) {
	return s.own.SubmitWork(ctx, w)
}

// Pending returns the handle of a task by its id, as producer.Producer.Pending does. The id of a
// run of a schedule is schedule.TickID.
func (s *Swarm) Pending(id task.ID) task.Pending { return s.own.Pending(id) }

// Close stops all consumers, listeners and producers, and forgets everything. Running handlers have
// 30 seconds to end, then their contexts end. The test fails if a handler ignores that. It is
// idempotent; New calls it at the end of its t.
func (s *Swarm) Close() {
	s.helper()
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return
	}
	s.closed = true
	consumers, producers, stops := s.consumers, s.producers, s.stops
	s.mu.Unlock()
	if s.watchdog != nil {
		s.watchdog.Stop()
	}
	var errs error
	for _, stop := range stops {
		errs = errors.Join(errs, stop())
	}
	var ending sync.WaitGroup
	for _, c := range consumers {
		c.Stop()
		ending.Go(func() { <-c.ended })
	}
	ending.Wait()
	s.overdue.Wait()
	s.awaitHandlers()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for _, c := range consumers {
		errs = errors.Join(errs, c.failure())
	}
	for _, p := range producers {
		errs = errors.Join(errs, p.Close(ctx))
	}
	errs = errors.Join(errs, s.list.Close(ctx), s.times.Close(ctx), s.store.Close(ctx), s.bus.Close(ctx), s.Broker.Close(ctx))
	if errs != nil {
		s.errorf("tasktest: closing the swarm: %v", errs)
	}
}

// awaitHandlers lets time pass for running handlers, because a bubble's clock stops with its test.
func (s *Swarm) awaitHandlers() {
	if !s.bubble {
		return
	}
	returned := make(chan struct{})
	go func() {
		s.handlers.Wait()
		close(returned)
	}()
	late := time.NewTimer(patience)
	defer late.Stop()
	select {
	case <-returned:
	case <-late.C:
		s.errorf("tasktest: a handler never returns; its goroutine follows")
	}
}

func (s *Swarm) helper() {
	if s.t != nil {
		s.t.Helper()
	}
}

// fatalf ends the test. Only its goroutine may call it.
func (s *Swarm) fatalf(format string, args ...any) { fatalf(s.t, format, args...) }

func fatalf(t testing.TB, format string, args ...any) {
	if t == nil {
		panic(fmt.Sprintf(format, args...))
	}
	t.Helper()
	t.Fatalf(format, args...)
}

// errorf fails the test. Any goroutine may call it before the end of Close.
func (s *Swarm) errorf(format string, args ...any) {
	if s.t == nil {
		s.log.Error(fmt.Sprintf(format, args...))
		return
	}
	s.t.Helper()
	s.t.Errorf(format, args...)
}

func setNil[T comparable](v *T, otherwise T) {
	var zero T
	if *v == zero {
		*v = otherwise
	}
}

var (
	_ task.Submitter      = (*Swarm)(nil)
	_ task.BatchSubmitter = (*Swarm)(nil)
	_ task.WorkSubmitter  = (*Swarm)(nil)
)

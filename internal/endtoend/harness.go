// Package endtoend is the suite for a producer and a consumer together, with any broker, result
// store and event bus. Every adapter that carries tasks passes it.
package endtoend

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/serializer"
	"github.com/swarmiji/swarmiji/task"
)

// Harness is a fresh namespace in which tasks travel.
type Harness struct {
	// Broker, Results and Events open connections as another process would. The suite closes them.
	Broker  func(t *testing.T) broker.Broker
	Results func(t *testing.T) resultstore.ResultStore
	Events  func(t *testing.T) events.EventBus
	// Revocations opens a bus that stores revocations. nil: cases that need it are skipped.
	Revocations func(t *testing.T) events.EventBus
	// Sever cuts a broker's connections. nil: cases that need it are skipped.
	Sever func(t *testing.T, b broker.Broker)
	// KeepsHeld means that a consumer keeps its deliveries until their lease ends, even if its
	// connections are cut.
	KeepsHeld bool
	// NoQueues means that no message waits in the broker without a listening consumer. No message is
	// delayed or dead-lettered.
	NoQueues bool
	// NoTimes means that the broker does not support times, so Submit refuses delays and expiry.
	NoTimes bool
	// OpenQueues means that every name is a queue.
	OpenQueues bool
	// Uncounted means that the broker does not know whether it delivered a message before.
	Uncounted bool
	// Reasonless means that dead letters have no reason.
	Reasonless bool
	// LateReady means that the broker counts a returned message as held until a consumer claims it.
	LateReady bool
	// Formats lists the formats that the producers write. nil: their default.
	Formats []serializer.Format
	// Pool runs the handlers. nil: the consumer's workers run them.
	Pool consumer.Pool
	// Brief means that the suite leaves out the cases whose outcome only producers and consumers
	// decide. It is for a road beside others that run these cases.
	Brief bool
	// Patience limits every wait. Default: 20s.
	Patience time.Duration
}

// Open makes a Harness for one test.
type Open func(t *testing.T) *Harness

const queueName = "road"

// road is a producer and a consumer with one harness.
type road struct {
	t        *testing.T
	h        *Harness
	broker   broker.Broker // the producer's connection
	consumer *consumer.Consumer
	producer *producer.Producer
	results  resultstore.ResultStore // the producer's connection
	log      *logBuffer
	running  *running

	listening bool // with NoQueues: a task has reached the consumer

	// makes another consumer with the same configuration
	anew    func() (*consumer.Consumer, error)
	handler func(context.Context, int) (int, error) // handler of work, for another consumer
}

// running is a consumer whose Run has not returned.
type running struct {
	t      *testing.T
	cancel context.CancelFunc
	done   chan struct{}
	err    error
}

// newRoad makes a producer and a consumer. Call start after the handlers are registered.
func newRoad(t *testing.T, open Open, change ...func(*producer.Config, *consumer.Config)) *road {
	t.Helper()
	h := open(t)
	if h.Patience == 0 {
		h.Patience = 2 * time.Minute
	}
	r := &road{t: t, h: h, log: &logBuffer{}}
	logger := slog.New(slog.NewTextHandler(r.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	r.broker = h.Broker(t)
	results := h.Results(t)
	pc := producer.Config{Broker: r.broker, Results: results, Router: queueRouter{}, Logger: logger, Wire: serializer.Wire{Formats: h.Formats}}
	cc := consumer.Config{
		Broker: h.Broker(t), Results: h.Results(t), Logger: logger, Tuning: consumer.Tuning{UnknownDelay: time.Millisecond, KillGrace: time.Second},
		Queues: map[string]consumer.QueueConfig{queueName: {Workers: 4, Prefetch: 16}},
	}
	cc.Pool = h.Pool
	for _, f := range change {
		f(&pc, &cc)
	}
	r.results = pc.Results
	var err error
	if r.producer, err = producer.New(pc); err != nil {
		t.Fatalf("producer: %v", err)
	}
	if r.consumer, err = consumer.New(cc); err != nil {
		t.Fatalf("consumer: %v", err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), h.Patience)
		defer cancel()
		if r.running != nil {
			_ = r.running.stop() // the test judges its error
		}
		for _, c := range []interface{ Close(context.Context) error }{r.producer, pc.Results, cc.Results, pc.Broker, cc.Broker} {
			if err := c.Close(ctx); err != nil {
				t.Errorf("close %T: %v", c, err)
			}
		}
		if t.Failed() {
			t.Logf("log:\n%s", r.log)
		}
	})
	return r
}

// start runs the consumer in a goroutine.
func (r *road) start() *running {
	r.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	run := &running{t: r.t, cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(run.done)
		run.err = r.consumer.Run(ctx)
	}()
	r.running = run
	return run
}

// stop cancels Run, waits for it and returns its error.
func (run *running) stop() error {
	run.cancel()
	select {
	case <-run.done:
	case <-time.After(time.Minute):
		run.t.Fatal("Run did not return within a minute of its context's end")
	}
	return run.err
}

func (r *road) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), r.h.Patience)
	r.t.Cleanup(cancel)
	return ctx
}

// submit submits a call. With NoQueues it waits until the consumer listens.
func (r *road) submit(c task.Call) task.Pending {
	r.t.Helper()
	ctx := r.ctx()
	for {
		p, err := r.producer.Submit(ctx, c)
		if err == nil {
			return p
		}
		if !r.h.NoQueues || !errors.Is(err, broker.ErrNoQueue) || ctx.Err() != nil {
			r.t.Fatalf("submit %s: %v", c.Name, err)
		}
		yield()
	}
}

func submit[A, R any](r *road, t task.Task[A, R], args A, opts ...task.Option) *task.Future[R] {
	r.t.Helper()
	return task.FutureOf[R](r.submit(t.Call(args, opts...)))
}

func handle[A, R any](r *road, t task.Task[A, R], fn func(context.Context, A) (R, error)) {
	r.t.Helper()
	if err := t.Handle(r.consumer, fn); err != nil {
		r.t.Fatal(err)
	}
}

func want[R comparable](r *road, f *task.Future[R], value R) {
	r.t.Helper()
	got, err := f.Get(r.ctx())
	if err != nil {
		r.t.Fatalf("result of %s: %v", f.ID(), err)
	}
	if got != value {
		r.t.Fatalf("result of %s is %v, want %v", f.ID(), got, value)
	}
}

func wantError[R any](r *road, f *task.Future[R], target error) {
	r.t.Helper()
	_ = failure(r, f, target) // failure checks the error
}

// failure waits until the task fails and returns the failure. If target is not nil, the failure
// must match it.
func failure[R any](r *road, f *task.Future[R], target error) *task.RemoteError {
	r.t.Helper()
	_, err := f.Get(r.ctx())
	if target != nil && !errors.Is(err, target) {
		r.t.Fatalf("result of %s: error is %v, want %v", f.ID(), err, target)
	}
	remote, ok := errors.AsType[*task.RemoteError](err)
	if !ok {
		r.t.Fatalf("result of %s: %v is no *task.RemoteError", f.ID(), err)
	}
	return remote
}

// eventually polls until ok returns true. It fails the test with the explanation if that takes
// longer than the harness's patience.
func (r *road) eventually(why string, ok func() bool) {
	r.t.Helper()
	deadline := time.Now().Add(r.h.Patience)
	for !ok() {
		if time.Now().After(deadline) {
			r.t.Fatalf("not within %s: %s", r.h.Patience, why)
		}
		yield()
	}
}

// yield waits 2 ms between two checks of a state that sends no signal.
func yield() {
	timer := time.NewTimer(2 * time.Millisecond)
	<-timer.C
}

type queueRouter struct{}

func (queueRouter) Route(context.Context, *task.Envelope) (string, error) { return queueName, nil }
func (queueRouter) Queues() []string                                      { return []string{queueName} }

type logBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

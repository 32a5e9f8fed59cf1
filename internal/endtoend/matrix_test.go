package endtoend_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/broker/membroker"
	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/events/memevents"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/open"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/resultstore/memresults"
	"github.com/swarmiji/swarmiji/router"
	"github.com/swarmiji/swarmiji/serializer"
	"github.com/swarmiji/swarmiji/task"
)

// place is the location of one part of the road. Each call of its functions opens a connection as
// another process would.
type place struct {
	broker  func(t *testing.T) broker.Broker
	results func(t *testing.T) resultstore.ResultStore
	events  func(t *testing.T) events.EventBus
	json    bool // other programs must be able to read its tasks
}

// inMemory returns a place in memory that all its connections share.
func inMemory() place {
	server := membroker.NewServer(membroker.Config{Logger: quiet()})
	results, bus := memresults.New(memresults.Config{}), memevents.New(memevents.Config{})
	return place{
		broker:  func(*testing.T) broker.Broker { return server.Connect() },
		results: func(*testing.T) resultstore.ResultStore { return results.View() },
		events:  func(*testing.T) events.EventBus { return bus },
	}
}

// at returns a place on a server.
func at(url string) place {
	o := open.Options{Namespace: testserver.Namespace(), Logger: quiet()}
	return place{
		broker:  func(t *testing.T) broker.Broker { return opened(t, url, o, open.Broker) },
		results: func(t *testing.T) resultstore.ResultStore { return opened(t, url, o, open.Results) },
		events:  func(t *testing.T) events.EventBus { return opened(t, url, o, open.Events) },
	}
}

func opened[T any](t *testing.T, url string, o open.Options, f func(context.Context, string, open.Options) (T, error)) T {
	t.Helper()
	part, err := f(t.Context(), url, o)
	if err != nil {
		t.Fatal(err)
	}
	return part
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// TestMatrix shows that any broker works with any result store and any event bus. Each pair of
// broker and store is a cell; the buses take turns.
//
// Promises: S5, S8.
func TestMatrix(t *testing.T) {
	rabbit, redis, nats := testserver.RequireRabbit(t), testserver.RequireRedis(t), testserver.RequireNATS(t)
	noLeaks(t)
	memory, amqp, natsPlace, redisPlace := inMemory(), at(rabbit.URL()), at(nats.URL()), at(redis.URL())
	hworker := at("hworker+" + redis.URL())
	hworker.json = true
	brokers := []named{{"memory", memory}, {"AMQP", amqp}, {"NATS", natsPlace}, {"Redis", redisPlace}, {"hworker", hworker}}
	stores := []named{{"memory", memory}, {"replies", amqp}, {"NATS", natsPlace}, {"Redis", redisPlace}}
	for i, b := range brokers {
		for j, s := range stores {
			bus := stores[(i+j+1)%len(stores)]
			t.Run(fmt.Sprintf("broker %s, results %s, events %s", b.name, s.name, bus.name), func(t *testing.T) {
				newCell(t, b.place, s.place, bus.place).run()
			})
		}
	}
}

// TestMatrixSQL shows that result stores in SQL work with brokers of other kinds: each database
// with one broker.
//
// Promises: S5.
func TestMatrixSQL(t *testing.T) {
	redis, postgres := testserver.RequireRedis(t), testserver.RequirePostgres(t)
	noLeaks(t)
	memory, file := inMemory(), at("sqlite://"+t.TempDir()+"/results.db")
	t.Run("broker memory, results SQLite, events memory", func(t *testing.T) { newCell(t, memory, file, memory).run() })
	t.Run("broker Redis, results PostgreSQL, events memory", func(t *testing.T) {
		newCell(t, at(redis.URL()), at(postgres.URL()), memory).run()
	})
}

type named struct {
	name  string
	place place
}

// cell is one combination: a producer and a consumer, each with its own connections.
type cell struct {
	t        *testing.T
	ctx      context.Context
	store    func(t *testing.T) resultstore.ResultStore
	consumer *consumer.Consumer
	producer *producer.Producer
	heard    events.Subscription
	flaky    atomic.Int64 // number of runs of the task that is retried
}

var errUpset = errors.New("the handler is upset")

var (
	matrixAdd   = task.New[[2]int, int]("matrix.add")
	matrixUpset = task.New[string, int]("matrix.upset")
	matrixFlaky = task.New[int, int]("matrix.flaky", task.WithMaxRetries(5), task.WithRetryDelay(0))
)

func newCell(t *testing.T, b, s, e place) *cell {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	c := &cell{t: t, ctx: ctx, store: s.results}
	queue := "matrix-" + testserver.Namespace() // hworker has no namespaces
	pb, cb := b.broker(t), b.broker(t)
	ps, cs := s.results(t), s.results(t)
	pe, ce := e.events(t), e.events(t)
	pc := producer.Config{Broker: pb, Results: ps, Events: pe, Router: router.Static(queue), Logger: quiet()}
	if b.json {
		pc.Wire.Formats = []serializer.Format{serializer.JSONFormat{}}
		pc.Wire.Serializers = []serializer.Serializer{serializer.JSON{}}
	}
	var err error
	if c.heard, err = pe.Subscribe(ctx, events.Filter{Types: []string{events.TaskSucceeded}}); err != nil {
		t.Fatalf("subscribe to events: %v", err)
	}
	if c.producer, err = producer.New(pc); err != nil {
		t.Fatal(err)
	}
	c.consumer, err = consumer.New(consumer.Config{
		Broker: cb, Results: cs, Events: ce, Queues: map[string]consumer.QueueConfig{queue: {Workers: 4, Prefetch: 16}}, Logger: quiet(),
	})
	if err != nil {
		t.Fatal(err)
	}
	c.handle()
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan error, 1)
	go func() { ended <- c.consumer.Run(running) }()
	t.Cleanup(func() {
		stop()
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := <-ended; err != nil {
			t.Errorf("the consumer ended with %v", err)
		}
		closers := []closer{c.producer, c.heard, ps, cs, pb, cb}
		if _, shared := pe.(*memevents.Bus); !shared {
			closers = append(closers, pe, ce)
		}
		for _, part := range closers {
			if err := part.Close(ctx); err != nil {
				t.Errorf("close %T: %v", part, err)
			}
		}
	})
	return c
}

type closer interface {
	Close(ctx context.Context) error
}

func (c *cell) handle() {
	c.t.Helper()
	err := errors.Join(
		matrixAdd.Handle(c.consumer, func(_ context.Context, p [2]int) (int, error) { return p[0] + p[1], nil }),
		matrixUpset.Handle(c.consumer, func(_ context.Context, why string) (int, error) { return 0, fmt.Errorf("%w: %s", errUpset, why) }),
		matrixFlaky.Handle(c.consumer, func(_ context.Context, n int) (int, error) {
			if c.flaky.Add(1) <= int64(n) {
				return 0, task.Retry(errUpset)
			}
			return n, nil
		}),
	)
	if err != nil {
		c.t.Fatal(err)
	}
}

// run tests the basic operations of a road in one cell.
func (c *cell) run() {
	first := c.submit(matrixAdd.Call([2]int{1, 2}))
	c.want(first, 3)
	c.hear(first.ID())

	_, err := task.FutureOf[int](c.submit(matrixUpset.Call("very"))).Get(c.ctx)
	if remote, ok := errors.AsType[*task.RemoteError](err); !ok || remote.Message != "the handler is upset: very" {
		c.t.Errorf("a failure came back as %v", err)
	}

	c.want(c.submit(matrixFlaky.Call(2)), 2)
	if n := c.flaky.Load(); n != 3 {
		c.t.Errorf("a task that succeeds at the third try ran %d times", n)
	}

	const many = 50
	batch := make([]task.Call, many)
	for i := range batch {
		batch[i] = matrixAdd.Call([2]int{i, i})
	}
	pending, err := c.producer.SubmitAll(c.ctx, batch)
	if err != nil {
		c.t.Fatalf("submit %d tasks: %v", many, err)
	}
	for i, p := range pending {
		c.want(p, 2*i)
	}
	c.late(first.ID())
}

func (c *cell) submit(call task.Call) task.Pending {
	c.t.Helper()
	p, err := c.producer.Submit(c.ctx, call)
	if err != nil {
		c.t.Fatalf("submit %s: %v", call.Name, err)
	}
	return p
}

func (c *cell) want(p task.Pending, value int) {
	c.t.Helper()
	got, err := task.FutureOf[int](p).Get(c.ctx)
	if err != nil || got != value {
		c.t.Fatalf("result of %s is %d, %v; want %d", p.ID(), got, err, value)
	}
}

// hear waits for the event of a task's success.
func (c *cell) hear(id task.ID) {
	c.t.Helper()
	for {
		e, err := c.heard.Receive(c.ctx)
		if err != nil {
			c.t.Fatalf("no event of the success of %s: %v", id, err)
		}
		if e.TaskID == id {
			return
		}
	}
}

// late reads a result in a process that did not exist when the task was submitted. For a store that
// only replies it checks that the result is not kept.
func (c *cell) late(id task.ID) {
	c.t.Helper()
	store := c.store(c.t)
	defer func() {
		if err := store.Close(context.WithoutCancel(c.ctx)); err != nil {
			c.t.Errorf("close the late store: %v", err)
		}
	}()
	r, err := store.Load(c.ctx, id)
	if resultstore.RepliesOnly(store) {
		if !errors.Is(err, resultstore.ErrNotFound) {
			c.t.Errorf("a store of replies kept one: %v", err)
		}
		return
	}
	if err != nil || r.State != task.StateSucceeded {
		c.t.Fatalf("another process finds %+v, %v", r, err)
	}
	other, err := producer.New(producer.Config{Broker: membroker.New(), Results: store, Logger: quiet()})
	if err != nil {
		c.t.Fatal(err)
	}
	c.want(other.Pending(id), 3)
	if err := other.Close(c.ctx); err != nil {
		c.t.Errorf("close the late producer: %v", err)
	}
}

package endtoend_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/broker/natsbroker"
	"github.com/swarmiji/swarmiji/connect/natsconnect"
	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/internal/testwait"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/resultstore/memresults"
	"github.com/swarmiji/swarmiji/router"
	"github.com/swarmiji/swarmiji/serializer"
	"github.com/swarmiji/swarmiji/task"
)

// TestSameID counts on each broker how often a task starts that is submitted again with its id:
// while it waits, while it runs, and after it has ended. docs/unique.md and task.WithID describe
// these numbers.
func TestSameID(t *testing.T) {
	rabbit, redis, nats := testserver.RequireRabbit(t), testserver.RequireRedis(t), testserver.RequireNATS(t)
	noLeaks(t)
	hworker := at("hworker+" + redis.URL())
	hworker.json = true
	for _, b := range []struct {
		name                  string
		place                 place
		waits, runs, hasEnded int64
	}{
		{"memory", inMemory(), 1, 1, 2},
		{"RabbitMQ", at(rabbit.URL()), 2, 2, 2},
		{"Redis", at(redis.URL()), 1, 1, 2},
		{"NATS", at(nats.URL()), 1, 1, 1}, // it remembers ids for Config.Dedupe, 30 s
		{"NATS, when that is over", forgetful(nats.URL()), 1, 1, 2},
		{"hworker", hworker, 2, 2, 2},
	} {
		t.Run(b.name, func(t *testing.T) {
			s := newSameID(t, b.place)
			s.want("while it waits", b.waits, s.whileItWaits())
			s.want("while it runs", b.runs, s.whileItRuns())
			s.want("when it has ended", b.hasEnded, s.whenItHasEnded(b.name == "NATS, when that is over"))
		})
	}
}

// forgetful returns a place on a NATS server that remembers published ids only for a short time.
func forgetful(url string) place {
	p, namespace := at(url), testserver.Namespace()
	p.broker = func(t *testing.T) broker.Broker {
		b, err := natsbroker.New(natsbroker.Config{Connect: natsconnect.Config{URLs: []string{url}}, Namespace: namespace, Dedupe: 100 * time.Millisecond, Logger: quiet()})
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	return p
}

// sameID is a road whose task waits until the test lets it end.
type sameID struct {
	t        *testing.T
	ctx      context.Context
	producer *producer.Producer
	consumer *consumer.Consumer
	started  atomic.Int64             // starts of the tested task
	ends     map[string]chan struct{} // by id; closed to let the task end
}

var (
	held   = task.New[string, int]("sameid.held", task.WithResultTTL(time.Hour))
	marker = task.New[int, int]("sameid.marker")
)

func newSameID(t *testing.T, at place) *sameID {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	s := &sameID{t: t, ctx: ctx, ends: map[string]chan struct{}{"waits": make(chan struct{}), "runs": make(chan struct{}), "ended": make(chan struct{})}}
	queue := "sameid-" + testserver.Namespace() // hworker has no namespaces
	pb, cb := at.broker(t), at.broker(t)
	results := memresults.New(memresults.Config{})
	pc := producer.Config{Broker: pb, Results: results, Router: router.Static(queue), Logger: quiet()}
	if at.json {
		pc.Wire.Formats = []serializer.Format{serializer.JSONFormat{}}
		pc.Wire.Serializers = []serializer.Serializer{serializer.JSON{}}
	}
	var err error
	if s.producer, err = producer.New(pc); err != nil {
		t.Fatal(err)
	}
	s.consumer, err = consumer.New(consumer.Config{
		Broker: cb, Results: results, Queues: map[string]consumer.QueueConfig{queue: {Workers: 4, Prefetch: 16}}, Logger: quiet(),
	})
	if err != nil {
		t.Fatal(err)
	}
	err = errors.Join(
		held.Handle(s.consumer, func(ctx context.Context, id string) (int, error) {
			s.started.Add(1)
			select {
			case <-s.ends[id]:
			case <-ctx.Done():
			}
			return 1, ctx.Err()
		}),
		marker.Handle(s.consumer, func(_ context.Context, i int) (int, error) { return i, nil }),
	)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := errors.Join(s.producer.Close(ctx), results.Close(ctx), pb.Close(ctx), cb.Close(ctx)); err != nil {
			t.Error(err)
		}
	})
	return s
}

// start runs the consumer until the test ends.
func (s *sameID) start() {
	ctx, stop := context.WithCancel(context.WithoutCancel(s.ctx))
	ended := make(chan error, 1)
	go func() { ended <- s.consumer.Run(ctx) }()
	s.t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			s.t.Errorf("the consumer ended with %v", err)
		}
	})
}

func (s *sameID) submit(id task.ID) *task.Future[int] {
	s.t.Helper()
	f, err := held.Submit(s.ctx, s.producer, string(id), task.WithID(id))
	if err != nil {
		s.t.Fatal(err)
	}
	return f
}

// settled lets the task end, and waits for it and for everything queued before this call.
func (s *sameID) settled(f *task.Future[int]) {
	s.t.Helper()
	close(s.ends[string(f.ID())])
	if _, err := f.Get(s.ctx); err != nil {
		s.t.Fatal(err)
	}
	s.passed()
}

// passed waits until every task queued before this call has started.
func (s *sameID) passed() {
	s.t.Helper()
	for i := range 20 {
		f, err := marker.Submit(s.ctx, s.producer, i)
		if err != nil {
			s.t.Fatal(err)
		}
		if _, err := f.Get(s.ctx); err != nil {
			s.t.Fatal(err)
		}
	}
}

// whileItWaits submits an id twice, then starts the consumer, and returns the number of starts.
func (s *sameID) whileItWaits() int64 {
	s.t.Helper()
	s.submit("waits")
	f := s.submit("waits")
	s.start()
	s.settled(f)
	return s.started.Swap(0)
}

// whileItRuns submits an id again while its handler runs, and returns the number of starts.
func (s *sameID) whileItRuns() int64 {
	s.t.Helper()
	s.submit("runs")
	testwait.Until(s.t, "the task runs", func() bool { return s.started.Load() == 1 })
	f := s.submit("runs")
	s.passed()
	s.settled(f)
	return s.started.Swap(0)
}

// whenItHasEnded submits an id again after it has a result, and returns the number of starts. With
// again it waits for another start.
func (s *sameID) whenItHasEnded(again bool) int64 {
	s.t.Helper()
	s.settled(s.submit("ended"))
	s.submit("ended")
	s.passed()
	if again {
		testwait.Until(s.t, "the task starts again", func() bool {
			s.submit("ended")
			return s.started.Load() == 2
		})
	}
	return s.started.Swap(0)
}

func (s *sameID) want(when string, want, got int64) {
	s.t.Helper()
	if got != want {
		s.t.Errorf("a task that is submitted again %s starts %d times, want %d", when, got, want)
	}
}

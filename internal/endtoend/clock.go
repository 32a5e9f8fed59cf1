package endtoend

import (
	"context"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/internal/suite"
	"github.com/swarmiji/swarmiji/middleware"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/task"
)

// wrongClock is the broker of a process whose wall clock is ahead. Its methods get times as such a
// process computes them.
type wrongClock struct {
	broker.Broker
	ahead time.Duration
}

// Unwrap makes the optional interfaces of the broker available.
func (b *wrongClock) Unwrap() any { return b.Broker }

func (b *wrongClock) PublishAt(ctx context.Context, queue string, m *broker.Message, at time.Time) error {
	return broker.PublishAt(ctx, b.Broker, b.wrong(broker.Outgoing{Queue: queue, Message: m, At: at}))
}

func (b *wrongClock) PublishBatch(ctx context.Context, ms []broker.Outgoing) error {
	wrong := make([]broker.Outgoing, len(ms))
	for i, o := range ms {
		wrong[i] = b.wrong(o)
	}
	return broker.PublishBatch(ctx, b.Broker, wrong)
}

func (b *wrongClock) Retry(ctx context.Context, d broker.Delivery, next broker.Outgoing) error {
	return broker.Replace(ctx, b.Broker, d, b.wrong(next))
}

func (b *wrongClock) wrong(o broker.Outgoing) broker.Outgoing {
	if !o.At.IsZero() {
		o.At = suite.WrongClock(o.At, b.ahead)
	}
	return o
}

// testWrongClock: a delay begins when the task reaches the broker, whatever the clocks of producer
// and consumer show. The same holds for the delay of a retry, of a snooze and of a task that is put
// back because of its rate limit.
func testWrongClock(t *testing.T, open Open) {
	if h := open(t); h.NoTimes {
		t.Skip("this broker knows no times")
	}
	const delay = 300 * time.Millisecond
	for name, ahead := range map[string]time.Duration{"Ahead": 5 * time.Minute, "Behind": -5 * time.Minute} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := new(middleware.Metrics)
			r := newRoad(t, open, func(p *producer.Config, c *consumer.Config) {
				p.Broker, c.Broker, c.Metrics = &wrongClock{p.Broker, ahead}, &wrongClock{c.Broker, ahead}, m
				c.Queues[queueName] = consumer.QueueConfig{Workers: 4, Prefetch: 1}
			})
			started := make(chan time.Time, 8)
			again := task.New[string, int]("again")
			handle(r, again, func(ctx context.Context, how string) (int, error) {
				started <- time.Now()
				req, _ := task.FromContext(ctx)
				switch {
				case how == "retry" && req.Retries == 0:
					return 0, task.Retry(errBroken, task.After(delay))
				case how == "snooze" && req.Generation == 0:
					return 0, task.Snooze(delay)
				}
				return 1, nil
			})
			r.start()
			late := func(what string, from, at time.Time) {
				t.Helper()
				if d := at.Sub(from); d < delay {
					t.Errorf("%s started %v early", what, delay-d)
				}
			}
			begin := time.Now()
			want(r, submit(r, again, "", task.WithDelay(delay)), 1)
			late("a delayed task", begin, <-started)
			begin = time.Now()
			pending, err := r.producer.SubmitAll(r.ctx(), []task.Call{again.Call("", task.WithDelay(delay)), again.Call("", task.WithDelay(delay))})
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range pending {
				want(r, task.FutureOf[int](p), 1)
				late("a delayed task of a batch", begin, <-started)
			}
			for _, how := range []string{"retry", "snooze"} {
				f := submit(r, again, how)
				begin = <-started
				want(r, f, 1)
				late("after a "+how+" the task", begin, <-started)
			}
			limited := again.With(task.WithRateLimit("30/m"))
			first, second := submit(r, limited, ""), submit(r, limited, "")
			want(r, first, 1)
			want(r, second, 1)
			begin = <-started
			late("a task that was put back for its rate", begin, <-started)
		})
	}
}

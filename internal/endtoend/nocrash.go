package endtoend

import (
	"context"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/middleware"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/task"
)

// testNoCrash: an event other than the death of a process does not count as a crash, however often
// it hits a held or running task.
func testNoCrash(t *testing.T, open Open) {
	for _, c := range []struct {
		name string
		do   func(r *road, run *running, side broker.Broker) *running
	}{
		{"graceful stop", func(r *road, run *running, _ broker.Broker) *running {
			if err := run.stop(); err != nil {
				r.t.Fatal(err)
			}
			return r.another()
		}},
		{"pause", func(r *road, run *running, _ broker.Broker) *running {
			r.eventually("the consumer runs", func() bool { return r.consumer.Stats().Running })
			if err := r.consumer.Pause(); err != nil {
				r.t.Fatal(err)
			}
			if err := r.consumer.Resume(); err != nil {
				r.t.Fatal(err)
			}
			return run
		}},
		{"scale down", func(r *road, run *running, _ broker.Broker) *running {
			r.eventually("the consumer runs", func() bool { return r.consumer.Stats().Running })
			r.scale(1)
			r.scale(2)
			return run
		}},
		{"cut connection", func(r *road, run *running, side broker.Broker) *running {
			if r.h.Sever != nil {
				r.h.Sever(r.t, side)
			}
			return run
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := new(middleware.Metrics)
			var cfg consumer.Config
			r := newRoad(t, open, func(_ *producer.Config, c *consumer.Config) {
				c.Metrics, c.Tuning.AbsentAfter = m, shortAbsence
				c.Queues[queueName] = consumer.QueueConfig{Workers: 2, PrefetchMultiplier: 10}
				cfg = *c
			})
			r.anew = func() (*consumer.Consumer, error) { return consumer.New(cfg) }
			const n, times = 40, 3
			started := make(chan struct{}, 10*n)
			gate := make(chan struct{})
			r.handler = func(ctx context.Context, i int) (int, error) {
				started <- struct{}{}
				select {
				case <-gate:
				case <-ctx.Done():
					return 0, ctx.Err()
				case <-time.After(50 * time.Millisecond):
				}
				return i, nil
			}
			handle(r, work, r.handler)
			fs := make([]*task.Future[int], n)
			for i := range fs {
				fs[i] = submit(r, work, i)
			}
			run := r.start()
			for range times {
				<-started
				run = c.do(r, run, cfg.Broker)
			}
			close(gate)
			for i, f := range fs {
				want(r, f, i)
			}
			if m.Crashes.Count() != 0 || m.DeadLettered.Count() != 0 {
				t.Errorf("%d crashes counted, %d tasks given up; want none", m.Crashes.Count(), m.DeadLettered.Count())
			}
			if err := run.stop(); err != nil {
				t.Error(err)
			}
		})
	}
}

// another starts a new consumer in place of the stopped one, with the same adapters.
func (r *road) another() *running {
	r.t.Helper()
	c, err := r.anew()
	if err != nil {
		r.t.Fatal(err)
	}
	r.consumer = c
	handle(r, work, r.handler)
	return r.start()
}

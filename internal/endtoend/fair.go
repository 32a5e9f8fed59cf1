package endtoend

import (
	"context"
	"errors"
	"testing"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/middleware"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/task"
)

// testFair: behind the backlog of one fairness key, the tasks of another start soon. Its retries
// keep the key and start soon too. The dead letter of a failed task has its key and its weight.
func testFair(t *testing.T, open Open) {
	const (
		backlog = 200
		soon    = 64 // starts: with exact turns about 6, by lanes more
		light   = -1 // is retried once
		broken  = -2 // fails
	)
	metrics := new(middleware.Metrics)
	r := newRoad(t, open, func(p *producer.Config, c *consumer.Config) {
		p.Queues = []broker.Queue{{Name: queueName, Fair: true}}
		c.Queues[queueName] = consumer.QueueConfig{Workers: 1, Prefetch: 4, Fair: true}
		c.Metrics = metrics
	})
	err := broker.Declare(r.ctx(), r.broker, broker.Queue{Name: queueName, Fair: true})
	if errors.Is(err, broker.ErrUnsupported) {
		t.Skip("this broker has no turns over fairness keys")
	} else if err != nil {
		t.Fatal(err)
	}
	type start struct{ arg, retries int }
	starts, step := make(chan start, 2*backlog), make(chan struct{})
	handle(r, work, func(ctx context.Context, i int) (int, error) {
		select {
		case <-step:
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		}
		req, _ := task.FromContext(ctx)
		starts <- start{i, req.Retries}
		switch {
		case i == broken:
			return 0, errBroken
		case req.Retries == 0 && (i == light || i%10 == 9):
			return 0, task.Retry(errBroken, task.After(0))
		}
		return i, nil
	})
	heavy := make([]*task.Future[int], backlog)
	for i := range heavy {
		heavy[i] = submit(r, work, i, task.WithFairnessKey("heavy"))
	}
	r.start()
	r.eventually("the first task runs", func() bool { return r.consumer.Stats().Active == 1 })
	lightly := []task.Option{task.WithFairnessKey("light"), task.WithFairnessWeight(7)}
	one, two := submit(r, work, light, lightly...), submit(r, work, broken, lightly...)

	retried := int64(0)
	// next lets one task run. It returns when a retry of it is in the queue.
	next := func() start {
		t.Helper()
		select {
		case step <- struct{}{}:
		case <-r.ctx().Done():
			t.Fatal("no task started")
		}
		s := <-starts
		if s.retries == 0 && (s.arg == light || s.arg >= 0 && s.arg%10 == 9) {
			retried++
			r.eventually("the retry is in the queue", func() bool { return metrics.Retried.Count() == retried })
		}
		return s
	}
	for _, want := range [][]start{{{light, 0}}, {{broken, 0}, {light, 1}}} {
		left := make(map[start]bool)
		for _, s := range want {
			left[s] = true
		}
		for n := 0; len(left) > 0; n++ {
			if n > soon {
				t.Fatalf("after %d starts %v have not started", n, left)
			}
			delete(left, next())
		}
	}
	close(step)
	want(r, one, light)
	wantError(r, two, nil)
	for i, f := range heavy {
		want(r, f, i)
	}
	if d := r.wantDead(string(two.ID()), errBroken.Error()); d.Message.Key != "light" || d.Message.Weight != 7 {
		t.Errorf("the dead letter has the key %q and the weight %d", d.Message.Key, d.Message.Weight)
	}
}

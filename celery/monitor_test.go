package celery_test

import (
	"context"
	"log/slog"
	"testing"

	"github.com/swarmiji/swarmiji/celery"
	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/internal/testwait"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/task"
)

// TestEvents shows that a swarm sends the events of its consumers, and those of tasks if they are
// wanted.
func TestEvents(t *testing.T) {
	url := testserver.RequireRabbit(t).NewVhost(t)
	quiet := slog.New(slog.DiscardHandler)
	for _, tasks := range []bool{false, true} {
		bus, err := celery.OpenEvents(t.Context(), url, celery.Options{Logger: quiet})
		if err != nil {
			t.Fatal(err)
		}
		sub, err := bus.Subscribe(testwait.Long(t), events.Filter{})
		if err != nil {
			t.Fatal(err)
		}
		swarm, err := celery.Open(t.Context(), url, celery.Options{TaskEvents: tasks, Queue: testserver.Namespace(), Logger: quiet})
		if err != nil {
			t.Fatal(err)
		}
		c, err := swarm.Consumer(consumer.Config{Report: events.Report{NodeID: "worker"}})
		if err != nil {
			t.Fatal(err)
		}
		add := task.New[pair, int]("go.sum")
		if err := add.Handle(c, func(_ context.Context, p pair) (int, error) { return p.X + p.Y, nil }); err != nil {
			t.Fatal(err)
		}
		p, err := swarm.Producer(producer.Config{Report: events.Report{NodeID: "web"}})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- c.Run(ctx) }()
		f, err := add.Submit(t.Context(), p, pair{1, 2})
		if err != nil {
			t.Fatal(err)
		}
		if n, err := f.Get(testwait.Long(t)); err != nil || n != 3 {
			t.Errorf("the result is %d, %v", n, err)
		}
		stop()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
		if err := p.Close(testwait.Long(t)); err != nil {
			t.Errorf("closing the producer: %v", err)
		}
		if err := swarm.Close(testwait.Long(t)); err != nil {
			t.Errorf("closing the swarm: %v", err)
		}
		seen := make(map[string]bool)
		for !seen["worker "+events.WorkerOffline] || !seen["web "+events.WorkerOffline] {
			e, err := sub.Receive(testwait.Long(t))
			if err != nil {
				t.Fatalf("after %v: %v", seen, err)
			}
			seen[e.NodeID+" "+e.Type] = true
		}
		if !seen["worker "+events.WorkerOnline] || seen["worker "+events.TaskSucceeded] != tasks || seen["web "+events.TaskSent] != tasks {
			t.Errorf("with TaskEvents %v: %v", tasks, seen)
		}
		if err := bus.Close(testwait.Long(t)); err != nil {
			t.Errorf("closing the bus: %v", err)
		}
	}
}

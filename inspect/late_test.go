package inspect_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/control"
	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/inspect"
	"github.com/swarmiji/swarmiji/open"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/task"
)

// TestLateConsumer shows that a consumer whose process was killed is soon offline: it neither
// answers nor sends heartbeats. One that sends heartbeats and does not answer is online.
func TestLateConsumer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := open.Open(t.Context(), "mem://", open.Options{Control: true})
		if err != nil {
			t.Fatal(err)
		}
		if err := broker.Declare(t.Context(), s.Broker, broker.Queue{Name: "mail"}); err != nil {
			t.Fatal(err)
		}
		api, err := open.Inspector(s, inspect.Config{Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- api.Run(ctx) }()
		synctest.Wait()
		beat := func(nodes ...string) {
			for _, node := range nodes {
				e := events.Event{Type: events.WorkerHeartbeat, NodeID: node, Time: time.Now(), Worker: &events.Worker{
					Role: events.RoleConsumer, Queues: []string{"mail"}, Freq: 2 * time.Second,
				}}
				if err := s.Events.Publish(t.Context(), e); err != nil {
					t.Fatal(err)
				}
			}
			synctest.Wait()
		}
		offline := func() (nodes []string) {
			page, err := api.ListWorkers(t.Context(), inspect.WorkerQuery{})
			if err != nil || len(page.Workers) != 2 {
				t.Fatalf("the workers: %+v, %v", page, err)
			}
			for _, w := range page.Workers {
				if w.Offline {
					nodes = append(nodes, w.Node)
				}
			}
			return nodes
		}
		beat("killed", "mute")
		if got := offline(); len(got) > 0 {
			t.Errorf("%v are offline at once", got)
		}
		for range 6 {
			time.Sleep(2 * time.Second)
			beat("mute")
		}
		if got := offline(); len(got) != 1 || got[0] != "killed" {
			t.Errorf("after 12 s %v are offline, want the killed one", got)
		}
		q, err := api.GetQueue(t.Context(), "mail")
		if err != nil || q.Consumers != 1 {
			t.Errorf("the queue: %+v, %v; want one consumer", q, err)
		}
		beat("killed")
		time.Sleep(2 * time.Second) // the last answers are kept for a second
		if got := offline(); len(got) > 0 {
			t.Errorf("%v are offline after another heartbeat", got)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if err := s.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
}

// TestStoppingConsumer shows that a stopping consumer does not count as one that takes tasks, and
// that its running tasks count.
func TestStoppingConsumer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := open.Open(t.Context(), "mem://", open.Options{Control: true})
		if err != nil {
			t.Fatal(err)
		}
		c, err := s.Consumer(consumer.Config{
			Queues: map[string]consumer.QueueConfig{"mail": {Workers: 1}}, Control: &control.Config{}, Logger: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			t.Fatal(err)
		}
		slow := task.New[int, int]("slow", task.WithQueue("mail"), task.WithIgnoreResult(true))
		release := make(chan struct{})
		if err := slow.Handle(c, func(context.Context, int) (int, error) { <-release; return 0, nil }); err != nil {
			t.Fatal(err)
		}
		p, err := s.Producer(producer.Config{Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- c.Run(ctx) }()
		synctest.Wait()
		var last task.ID
		for i := range 2 {
			f, err := slow.Submit(t.Context(), p, i)
			if err != nil {
				t.Fatal(err)
			}
			last = f.ID()
		}
		synctest.Wait()
		stop()
		synctest.Wait()
		api, err := open.Inspector(s, inspect.Config{Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		page, err := api.ListWorkers(t.Context(), inspect.WorkerQuery{})
		if err != nil || !slices.ContainsFunc(page.Workers, func(w inspect.Worker) bool { return w.Stopping }) {
			t.Errorf("the workers: %+v, %v", page.Workers, err)
		}
		q, err := api.GetQueue(t.Context(), "mail")
		if err != nil || q.Consumers != 0 || q.Workers != 0 || q.Active != 1 {
			t.Errorf("the queue: %+v, %v", q, err)
		}
		why, err := api.Why(t.Context(), inspect.TaskKey{ID: last, Queues: []string{"mail"}})
		if err != nil || !slices.ContainsFunc(why.Reasons, func(r inspect.Reason) bool { return strings.Contains(r.Text, "is stopping") }) {
			t.Errorf("why: %+v, %v", why, err)
		}
		close(release)
		if err := errors.Join(<-ended, p.Close(context.WithoutCancel(t.Context())), s.Close(context.WithoutCancel(t.Context()))); err != nil {
			t.Error(err)
		}
	})
}

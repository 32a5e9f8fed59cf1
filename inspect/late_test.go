package inspect_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
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

// swarm opens a swarm in memory with the queue "mail", for the test.
func swarm(t *testing.T) *open.Swarm {
	t.Helper()
	s, err := open.Open(t.Context(), "mem://", open.Options{Control: true, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	if err := broker.Declare(t.Context(), s.Broker, broker.Queue{Name: "mail"}); err != nil {
		t.Fatal(err)
	}
	return s
}

// worker makes a consumer of the queue "mail" that answers questions.
func worker(t *testing.T, s *open.Swarm) *consumer.Consumer {
	t.Helper()
	c, err := s.Consumer(consumer.Config{
		Queues: map[string]consumer.QueueConfig{"mail": {Workers: 1}}, Control: &control.Config{}, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// during runs run until the end of the test.
func during(t *testing.T, run func(ctx context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()
	synctest.Wait()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// observer returns an API over s that listens until the end of the test. client may be nil.
func observer(t *testing.T, s *open.Swarm, client *control.Client) *inspect.Local {
	t.Helper()
	api, err := open.Inspector(s, inspect.Config{Control: client, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	during(t, api.Run)
	return api
}

// beat publishes heartbeats of consumers of the queue "mail".
func beat(t *testing.T, bus events.EventBus, nodes ...string) {
	t.Helper()
	for _, node := range nodes {
		e := events.Event{Type: events.WorkerHeartbeat, NodeID: node, Time: time.Now(), Worker: &events.Worker{
			Role: events.RoleConsumer, Queues: []string{"mail"}, Freq: 2 * time.Second,
		}}
		if err := bus.Publish(t.Context(), e); err != nil {
			t.Fatal(err)
		}
	}
	synctest.Wait()
}

// those returns the names of the workers for which is returns true, sorted.
func those(t *testing.T, api inspect.API, is func(w inspect.Worker) bool) (nodes []string) {
	t.Helper()
	page, err := api.ListWorkers(t.Context(), inspect.WorkerQuery{})
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range page.Workers {
		if is(w) {
			nodes = append(nodes, w.Node)
		}
	}
	slices.Sort(nodes)
	return nodes
}

func offline(w inspect.Worker) bool { return w.Offline }
func answers(w inspect.Worker) bool { return w.Answers }

// TestLateConsumer shows that a consumer whose process was killed is soon offline: it neither
// answers nor sends heartbeats. One that sends heartbeats and does not answer is online.
func TestLateConsumer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := swarm(t)
		api := observer(t, s, nil)
		beat(t, s.Events, "killed", "mute")
		if got := those(t, api, offline); len(got) > 0 {
			t.Errorf("%v are offline at once", got)
		}
		for range 6 {
			time.Sleep(2 * time.Second)
			beat(t, s.Events, "mute")
		}
		if got := those(t, api, offline); !slices.Equal(got, []string{"killed"}) {
			t.Errorf("after 12 s %v are offline, want the killed one", got)
		}
		q, err := api.GetQueue(t.Context(), "mail")
		if err != nil || q.Consumers != 1 {
			t.Errorf("the queue: %+v, %v; want one consumer", q, err)
		}
		beat(t, s.Events, "killed")
		time.Sleep(2 * time.Second) // the last answers are kept for a second
		if got := those(t, api, offline); len(got) > 0 {
			t.Errorf("%v are offline after another heartbeat", got)
		}
	})
}

// TestLateConsumerCostsNoWait shows that at most one question waits for a consumer that was killed.
func TestLateConsumerCostsNoWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := swarm(t)
		c := worker(t, s)
		api := observer(t, s, nil)
		during(t, c.Run)
		time.Sleep(5 * time.Second)
		beat(t, s.Events, "killed")
		waited := 0
		for killed := time.Now(); time.Since(killed) < time.Minute; {
			time.Sleep(1500 * time.Millisecond) // answers are kept for a second
			asked := time.Now()
			those(t, api, answers)
			if took := time.Since(asked); took > time.Second {
				waited++
				t.Logf("%v after the end of the consumer a question took %v", asked.Sub(killed), took)
			}
		}
		if waited > 1 {
			t.Errorf("%d questions waited for a consumer that is gone", waited)
		}
	})
}

// blocked is a bus whose server takes no messages while it has an alarm.
type blocked struct {
	events.EventBus
	alarm *atomic.Bool
}

func (b blocked) Publish(ctx context.Context, e events.Event) error {
	if b.alarm.Load() {
		return nil
	}
	return b.EventBus.Publish(ctx, e)
}

// TestBlockedBus shows that no consumer is offline because neither its heartbeats nor the question
// to it can be sent for a while.
func TestBlockedBus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := swarm(t)
		var alarm atomic.Bool
		client, err := control.NewClient(control.ClientConfig{Bus: blocked{s.Control, &alarm}})
		if err != nil {
			t.Fatal(err)
		}
		api := observer(t, s, client)
		for i := range 60 {
			alarm.Store(i >= 15 && i < 40)
			beat(t, blocked{s.Events, &alarm}, []string{"a", "b"}[i%2])
			time.Sleep(time.Second)
			if got := those(t, api, offline); len(got) > 0 {
				t.Fatalf("after %d s %v are offline; the alarm lasts from 15 to 40 s", i, got)
			}
		}
	})
}

// plain is a node that answers questions.
type plain struct {
	control.Node // nil: its other methods are not called
	id           string
}

func (p plain) NodeID() string { return p.id }
func (plain) Queues() []string { return []string{"mail"} }
func (plain) Stats() control.Stats {
	return control.Stats{Queues: []control.QueueStats{{Name: "mail", Workers: 1}}}
}

// distant is a bus over which messages travel for a time.
type distant struct {
	events.EventBus
	travel *atomic.Int64
}

func (d distant) Publish(ctx context.Context, e events.Event) error {
	time.Sleep(time.Duration(d.travel.Load()))
	return d.EventBus.Publish(ctx, e)
}

// TestSlowConsumer shows that a consumer that was too slow for one question answers later ones,
// although it is always slower than the others.
func TestSlowConsumer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := swarm(t)
		api := observer(t, s, nil)
		var near, far atomic.Int64
		for id, travel := range map[string]*atomic.Int64{"near": &near, "far": &far} {
			server, err := control.NewServer(control.Config{Bus: distant{s.Control, travel}, Logger: slog.New(slog.DiscardHandler)}, plain{id: id})
			if err != nil {
				t.Fatal(err)
			}
			during(t, server.Run)
		}
		ask := func() []string {
			beat(t, s.Events, "near", "far")
			time.Sleep(2 * time.Second)
			return those(t, api, answers)
		}
		const usual = int64(150 * time.Millisecond)
		far.Store(usual)
		if got := ask(); len(got) != 2 {
			t.Fatalf("%v answer, want both", got)
		}
		far.Store(int64(4 * time.Second))
		if got := ask(); !slices.Equal(got, []string{"near"}) {
			t.Fatalf("%v answer, want the near one", got)
		}
		far.Store(usual)
		both := false
		for range 60 {
			both = len(ask()) == 2 || both
		}
		if !both {
			t.Error("the far consumer does not count as answering for two minutes")
		}
	})
}

// TestStoppingConsumer shows that a stopping consumer does not count as one that takes tasks, and
// that its running tasks count.
func TestStoppingConsumer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := swarm(t)
		c := worker(t, s)
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
		if err := errors.Join(<-ended, p.Close(context.WithoutCancel(t.Context()))); err != nil {
			t.Error(err)
		}
	})
}

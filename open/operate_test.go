package open_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/capability"
	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/internal/testwait"
	"github.com/swarmiji/swarmiji/open"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/router"
	"github.com/swarmiji/swarmiji/settings"
	"github.com/swarmiji/swarmiji/task"
)

// site is one server with the parts of an operator and of a submitter.
type site struct {
	*testing.T
	open    func() *open.Swarm // another process
	restart func()             // nil: the server cannot be restarted
	op      *open.Swarm
	p       *producer.Producer

	mu     sync.Mutex
	counts map[string]int // runs by argument
	most   atomic.Int64   // tasks with one name that ran at once
	broken atomic.Bool    // mails fail
	gate   chan struct{}  // handlers wait for it; nil: they do not
}

var (
	mail  = task.New[string, string]("mail")
	other = task.New[string, string]("other")
)

// TestOperate pauses, limits, adds and removes queues and breaks tasks as an operator does, over
// every server, with consumers that start after the change.
func TestOperate(t *testing.T) {
	restart := func(t *testing.T, s interface{ Restart(context.Context) error }) func() {
		return func() {
			if err := s.Restart(testwait.Long(t)); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, server := range map[string]func(t *testing.T) (url string, again func()){
		"sqlite": func(t *testing.T) (string, func()) { return "sqlite://" + t.TempDir() + "/app.db", nil },
		"postgres": func(t *testing.T) (string, func()) {
			s := testserver.RequirePostgres(t)
			url, err := s.Database(t.Context(), testserver.Namespace())
			if err != nil {
				t.Fatal(err)
			}
			return url, restart(t, s)
		},
		"redis": func(t *testing.T) (string, func()) {
			s := testserver.RequireRedis(t)
			return s.URL(), restart(t, s)
		},
		"nats": func(t *testing.T) (string, func()) {
			s := testserver.RequireNATS(t)
			return s.URL(), restart(t, s)
		},
		"rabbit": func(t *testing.T) (string, func()) {
			s := testserver.RequireRabbit(t)
			return s.URL(), restart(t, s)
		},
	} {
		t.Run(name, func(t *testing.T) {
			url, again := server(t)
			for name, scene := range map[string]func(*site){
				"pause": (*site).pauses, "task": (*site).pausesTask, "queues": (*site).movesQueues, "limit": (*site).limits, "breaker": (*site).breaks,
				"restart": (*site).restarts,
			} {
				t.Run(name, func(t *testing.T) {
					o := open.Options{Namespace: testserver.Namespace(), Logger: slog.New(slog.DiscardHandler)}
					s := &site{T: t, open: func() *open.Swarm { return opened(t, url, o) }, restart: again, counts: make(map[string]int)}
					s.op = s.open()
					p, err := s.op.Producer(producer.Config{Router: router.Static("work")})
					if err != nil {
						t.Fatal(err)
					}
					s.p = p
					t.Cleanup(func() { _ = p.Close(context.Background()) })
					scene(s)
				})
			}
		})
	}
}

// start starts a consumer on a Swarm of its own, which the test stops at its end.
func (s *site) start(cfg consumer.Config) *consumer.Consumer {
	s.Helper()
	cfg.Logger = slog.New(slog.DiscardHandler)
	c, err := s.open().Consumer(cfg)
	if err != nil {
		s.Fatal(err)
	}
	for _, def := range []task.Task[string, string]{mail, other} {
		var running atomic.Int64
		err := def.Handle(c, func(_ context.Context, name string) (string, error) {
			now := running.Add(1)
			defer running.Add(-1)
			for most := s.most.Load(); now > most && !s.most.CompareAndSwap(most, now); most = s.most.Load() {
			}
			if s.gate != nil {
				<-s.gate
			}
			if s.broken.Load() && def.Name() == mail.Name() {
				return "", task.Retry(errors.New("the printer is broken"))
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			s.counts[name]++
			return name, nil
		})
		if err != nil {
			s.Fatal(err)
		}
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	s.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			s.Errorf("Run: %v", err)
		}
	})
	testwait.Until(s, "the consumer runs", func() bool { return c.Stats().Running })
	return c
}

// queues returns a configuration with this queue.
func queues(name string, q consumer.QueueConfig) consumer.Config {
	return consumer.Config{Queues: map[string]consumer.QueueConfig{name: q}}
}

// submit submits tasks with these arguments, without results.
func (s *site) submit(def task.Task[string, string], options []task.Option, names ...string) {
	s.Helper()
	for _, name := range names {
		if _, err := def.Submit(testwait.Long(s), s.p, name, append(options, task.WithIgnoreResult(true))...); err != nil {
			s.Fatal(err)
		}
	}
}

// ran returns how many different tasks have run, and fails if one has run twice.
func (s *site) ran() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, n := range s.counts {
		if n > 1 {
			s.Errorf("%s ran %d times", name, n)
		}
	}
	return len(s.counts)
}

// done returns how many different tasks have run, each once or again after a lost connection.
func (s *site) done() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.counts)
}

// length waits until a queue has this many ready tasks and none is held.
func (s *site) length(queue string, ready int) {
	s.Helper()
	i, ok := capability.As[broker.Inspector](s.op.Broker)
	if !ok {
		s.Fatal("the broker cannot be inspected")
	}
	testwait.UntilNil(s, "the length of "+queue, func() error {
		st, err := i.Stats(testwait.Long(s), queue)
		if err == nil && (st.Ready != ready || st.Held > 0 || st.Delayed > 0) {
			err = fmt.Errorf("%+v, want %d ready and none held", st, ready)
		}
		return err
	})
}

// endlessLease does not end before the test: a held message does not come back by itself.
const endlessLease = time.Hour

// free shows that no process holds one of the n messages of a queue: another process receives all
// of them, and gives them back. The lease is that which the queue has had; a shorter one than
// endlessLease lets held messages come back. Stats would not show that: NATS counts a message that
// was given back as held until a consumer receives it.
func (s *site) free(queue string, n int, lease time.Duration) {
	s.Helper()
	ctx := testwait.Long(s)
	sub, err := s.op.Broker.Subscribe(ctx, queue, broker.SubscribeOptions{Lease: lease})
	s.must(err)
	var all []broker.Delivery
	for len(all) < n {
		d, err := sub.Receive(ctx)
		if err != nil {
			s.Fatalf("of %d messages of queue %s only %d can be received: %v", n, queue, len(all), err)
		}
		all = append(all, d)
	}
	for _, d := range all {
		s.must(d.Release(ctx, 0))
	}
	s.must(sub.Close(ctx))
}

// must fails the test after an error.
func (s *site) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// pauses shows that a pause holds for consumers that start later. They hold no message of the
// queue. With SWARMIJI_THOROUGH the server is restarted meanwhile. Without it, restarts shows that
// stored operations hold through a restart.
func (s *site) pauses() {
	ctx := testwait.Long(s)
	s.must(settings.PauseQueue(ctx, s.op.Settings, "work", settings.Pause{Why: "a test"}))
	a := s.start(queues("work", consumer.QueueConfig{Workers: 2}))
	if !a.Stats().Queues[0].Paused {
		s.Error("a consumer that started later is not paused")
	}
	s.submit(mail, nil, "a", "b", "c")
	s.length("work", 3)
	if s.restart != nil && testserver.IsThorough() {
		s.restart()
		b := s.start(queues("work", consumer.QueueConfig{Workers: 2}))
		if !b.Stats().Queues[0].Paused {
			s.Error("a consumer that started after the restart is not paused")
		}
		s.length("work", 3)
	}
	if n := s.ran(); n > 0 {
		s.Errorf("%d tasks of a paused queue ran", n)
	}
	if found, err := settings.ResumeQueue(testwait.Long(s), s.op.Settings, "work"); err != nil || !found {
		s.Fatalf("ResumeQueue: %v, %v", found, err)
	}
	testwait.Until(s, "all tasks ran", func() bool { return s.ran() == 3 })
	// until a time, and while consumers run
	s.must(settings.PauseQueue(testwait.Long(s), s.op.Settings, "work", settings.Pause{Until: time.Now().Add(3 * time.Second)}))
	testwait.Until(s, "the running consumer pauses", func() bool { return a.Stats().Queues[0].Paused })
	s.submit(mail, nil, "d")
	testwait.Until(s, "the pause has ended", func() bool { return s.ran() == 4 })
}

// pausesTask shows that paused tasks wait outside of their queue, use no attempt, and come back.
func (s *site) pausesTask() {
	ctx := testwait.Long(s)
	s.must(settings.PauseTask(ctx, s.op.Settings, "mail", settings.Pause{}))
	s.start(queues("work", consumer.QueueConfig{Workers: 2}))
	s.submit(mail, nil, "a", "b")
	s.submit(mail, []task.Option{task.WithIdempotent(false)}, "once")
	s.submit(other, nil, "other")
	testwait.Until(s, "the task that is not paused ran", func() bool { return s.ran() == 1 })
	s.length("work.paused.mail", 3)
	s.length("work", 0)
	if _, err := settings.ResumeTask(testwait.Long(s), s.op.Settings, "mail"); err != nil {
		s.Fatal(err)
	}
	s.start(queues("work", consumer.QueueConfig{Workers: 2}))
	testwait.Until(s, "all tasks ran", func() bool { return s.ran() == 4 })
	s.length("work.paused.mail", 0)
	testwait.UntilNil(s, "the queue of moved messages is left", func() error {
		_, found, err := settings.AsideOf("work", "mail").Get(testwait.Long(s), s.op.Settings)
		if err == nil && found {
			err = errors.New("it is still served")
		}
		return err
	})
}

// movesQueues shows that a queue that is added and removed while its tasks run loses none, runs
// none twice, and leaves no message held; and that a group serves a queue from its start on.
func (s *site) movesQueues() {
	c := s.start(queues("idle", consumer.QueueConfig{}))
	var names []string
	for i := range 60 {
		names = append(names, "t"+string(rune('a'+i/10))+string(rune('0'+i%10)))
	}
	s.submit(mail, nil, names...)
	for n := 1; s.ran() < len(names); n++ {
		ctx := testwait.Long(s)
		s.must(c.AddQueue(ctx, "work", consumer.QueueConfig{Workers: 2, Prefetch: 8, Lease: endlessLease}))
		if err := c.AddQueue(ctx, "work", consumer.QueueConfig{}); !errors.Is(err, consumer.ErrQueueExists) {
			s.Fatalf("AddQueue twice: %v", err)
		}
		testwait.Until(s, "some tasks ran", func() bool { return s.ran() >= min(15*n, len(names)) })
		s.must(c.RemoveQueue(ctx, "work"))
		if err := c.RemoveQueue(ctx, "work"); !errors.Is(err, consumer.ErrNoQueue) {
			s.Fatalf("RemoveQueue twice: %v", err)
		}
		s.free("work", len(names)-s.ran(), endlessLease)
	}
	// The group is still leaving when its Stats do not have the queue any more. NATS may send it a
	// message at that moment, and delivers the message again after the lease. So this is another
	// queue, whose lease ends.
	ctx := testwait.Long(s)
	s.must(settings.ServeQueue(ctx, s.op.Settings, "batch", "served", settings.Served{Workers: 3}))
	cfg := queues("idle", consumer.QueueConfig{})
	cfg.Group = "batch"
	grouped := s.start(cfg)
	testwait.Until(s, "the group has the queue", func() bool { return len(grouped.Stats().Queues) == 2 })
	served := []task.Option{task.WithQueue("served")}
	s.submit(mail, served, "grouped")
	testwait.Until(s, "the group serves the queue", func() bool { return s.ran() == len(names)+1 })
	s.must(settings.ServeQueue(ctx, s.op.Settings, "batch", "served", settings.Served{Removed: true}))
	testwait.Until(s, "the group has left the queue", func() bool { return len(grouped.Stats().Queues) == 1 })
	s.submit(mail, served, "waits")
	s.free("served", 1, 0)
	if n := s.ran(); n != len(names)+1 {
		s.Errorf("%d tasks ran, want %d", n, len(names)+1)
	}
}

// limits shows that a stored limit of the concurrency holds for a consumer that starts later, and
// ends when it is removed.
func (s *site) limits() {
	ctx := testwait.Long(s)
	s.must(settings.LimitQueue(ctx, s.op.Settings, "work", settings.Limit{Concurrency: 1}))
	c := s.start(queues("work", consumer.QueueConfig{Workers: 4, Prefetch: 4}))
	var names []string
	for i := range 12 {
		names = append(names, "t"+string(rune('a'+i)))
	}
	s.submit(mail, nil, names...)
	testwait.Until(s, "all tasks ran", func() bool { return s.ran() == len(names) })
	if most := s.most.Load(); most != 1 {
		s.Errorf("%d tasks ran at once, the limit is 1", most)
	}
	s.must(settings.LimitQueue(ctx, s.op.Settings, "work", settings.Limit{}))
	testwait.Until(s, "the limit has ended", func() bool { return c.Stats().Queues[0].Workers == 4 })
}

// breaks shows that failures pause the queue for all consumers, also for one that starts later, and
// that a success ends that.
func (s *site) breaks() {
	s.broken.Store(true)
	cfg := queues("work", consumer.QueueConfig{Workers: 1, Breaker: &consumer.Breaker{Failures: 2, Of: 3, Pause: 2 * time.Second}})
	a := s.start(cfg)
	s.submit(mail, []task.Option{task.WithMaxRetries(20), task.WithRetryDelay(50 * time.Millisecond)}, "a", "b", "c")
	testwait.Until(s, "the breaker has tripped", func() bool { return a.Stats().Queues[0].Paused })
	if b := s.start(cfg); !b.Stats().Queues[0].Paused {
		v, found, err := settings.QueueBreaker("work").Get(testwait.Long(s), s.op.Settings)
		if err != nil || found && time.Now().Before(v.Until) {
			s.Errorf("a consumer that started later is not paused: %+v, %v", v, err)
		}
	}
	s.broken.Store(false)
	testwait.Until(s, "all tasks ran", func() bool { return s.ran() == 3 })
	testwait.UntilNil(s, "the breaker is reset", func() error {
		v, found, err := settings.QueueBreaker("work").Get(testwait.Long(s), s.op.Settings)
		if err == nil && found {
			err = errors.New(v.Why)
		}
		return err
	})
}

// restarts shows that stored operations hold for a consumer that starts after a restart of the
// server: a breaker that has tripped, and the limit of a task. An operator ends the breaker.
func (s *site) restarts() {
	s.broken.Store(true)
	// Messages that the pause gives back in the moment of the restart come after the lease.
	cfg := queues("work", consumer.QueueConfig{Workers: 4, Lease: 3 * time.Second, Breaker: &consumer.Breaker{Failures: 2, Of: 2, Pause: time.Hour}})
	a := s.start(cfg)
	s.must(settings.LimitTask(testwait.Long(s), s.op.Settings, "other", settings.Limit{Concurrency: 1}))
	s.submit(mail, []task.Option{task.WithMaxRetries(20), task.WithRetryDelay(50 * time.Millisecond)}, "a", "b", "c")
	testwait.Until(s, "the breaker has tripped", func() bool { return a.Stats().Queues[0].Paused })
	if s.restart != nil {
		s.restart()
	}
	s.most.Store(0)
	cfg = queues("work", cfg.Queues["work"])
	cfg.Queues["calm"] = consumer.QueueConfig{Workers: 4, Prefetch: 8}
	b := s.start(cfg)
	for _, q := range b.Stats().Queues {
		if q.Paused != (q.Name == "work") {
			s.Errorf("queue %s of a consumer that started later is paused: %v", q.Name, q.Paused)
		}
	}
	var names []string
	for i := range 8 {
		names = append(names, "t"+string(rune('a'+i)))
	}
	s.submit(other, []task.Option{task.WithQueue("calm")}, names...)
	testwait.Until(s, "all tasks of the other queue ran", func() bool { return s.done() == len(names) })
	if most := s.most.Load(); most != 1 {
		s.Errorf("%d tasks ran at once, the limit is 1", most)
	}
	s.broken.Store(false)
	if found, err := settings.ResumeQueue(testwait.Long(s), s.op.Settings, "work"); err != nil || !found {
		s.Fatalf("ResumeQueue: %v, %v", found, err)
	}
	testwait.Until(s, "the other tasks ran", func() bool { return s.done() == len(names)+3 })
}

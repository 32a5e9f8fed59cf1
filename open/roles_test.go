package open_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/control"
	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/internal/testwait"
	"github.com/swarmiji/swarmiji/limit"
	"github.com/swarmiji/swarmiji/open"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/revoke"
	"github.com/swarmiji/swarmiji/task"
)

// running runs a consumer until the test ends.
func running(t *testing.T, c *consumer.Consumer) {
	t.Helper()
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
}

// producing returns a producer that is closed when the test ends.
func producing(t *testing.T, s *open.Swarm) *producer.Producer {
	t.Helper()
	p, err := s.Producer(producer.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(context.Background()); err != nil {
			t.Errorf("close the producer: %v", err)
		}
	})
	return p
}

// TestRoles shows that the producers and consumers of a Swarm use its parts: results, events and
// revocations arrive.
func TestRoles(t *testing.T) {
	for name, server := range map[string]func(t *testing.T) string{
		"memory": func(*testing.T) string { return "mem://" },
		"rabbit": func(t *testing.T) string { return testserver.RequireRabbit(t).URL() },
		"nats":   func(t *testing.T) string { return testserver.RequireNATS(t).URL() },
		"redis":  func(t *testing.T) string { return testserver.RequireRedis(t).URL() },
	} {
		t.Run(name, func(t *testing.T) {
			ctx, url, o := testwait.Long(t), server(t), open.Options{Namespace: testserver.Namespace()}
			runs := opened(t, url, o)
			submits := runs
			if name != "memory" {
				submits = opened(t, url, o)
			}
			heard, err := submits.Events.Subscribe(ctx, events.Filter{Types: []string{events.TaskSucceeded}})
			if err != nil {
				t.Fatal(err)
			}
			c, err := runs.Consumer(consumer.Config{})
			if err != nil {
				t.Fatal(err)
			}
			if err := double.Handle(c, func(_ context.Context, n int) (int, error) { return 2 * n, nil }); err != nil {
				t.Fatal(err)
			}
			running(t, c)
			p := producing(t, submits)
			f, err := double.Submit(ctx, p, 21)
			if err != nil {
				t.Fatal(err)
			}
			if n, err := f.Get(ctx); n != 42 || err != nil {
				t.Errorf("result is %d, %v", n, err)
			}
			if e, err := heard.Receive(ctx); err != nil || e.TaskID != f.ID() {
				t.Errorf("event is %+v, %v", e, err)
			}
			if err := heard.Close(ctx); err != nil {
				t.Error(err)
			}
			revoker, err := revoke.NewRevoker(revoke.RevokerConfig{Events: submits.Revocations})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := revoker.Revoke(ctx, revoke.Options{}, "revoked"); err != nil {
				t.Errorf("Revoke: %v", err)
			}
			if f, err = double.Submit(ctx, p, 1, task.WithID("revoked")); err != nil {
				t.Fatal(err)
			}
			if _, err := f.Get(ctx); !errors.Is(err, task.ErrRevoked) {
				t.Errorf("a revoked task ended with %v", err)
			}
		})
	}
}

// TestRolesObserve shows that the remaining nodes report a silent node, whether they produce or
// consume.
func TestRolesObserve(t *testing.T) {
	for name, begin := range map[string]func(t *testing.T, s *open.Swarm) (node string){
		"a producer": func(t *testing.T, s *open.Swarm) string { return producing(t, s).NodeID() },
		"a consumer": func(t *testing.T, s *open.Swarm) string {
			c, err := s.Consumer(consumer.Config{})
			if err != nil {
				t.Fatal(err)
			}
			return c.NodeID()
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := opened(t, "mem://", open.Options{})
				node := begin(t, s)
				synctest.Wait()
				heard, err := s.Events.Subscribe(t.Context(), events.Filter{Types: []string{events.WorkerOffline}})
				if err != nil {
					t.Fatal(err)
				}
				ghost := events.Event{Type: events.WorkerOnline, NodeID: "ghost", Time: time.Now(), Worker: &events.Worker{Freq: 2 * time.Second}}
				if err := s.Events.Publish(t.Context(), ghost); err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				e, err := heard.Receive(ctx)
				if err != nil || e.NodeID != "ghost" || e.Worker == nil || e.Worker.Observer != node {
					t.Errorf("an hour after the last sign of a node: %+v, %v; want worker-offline of ghost from %s", e, err, node)
				}
				if err := heard.Close(t.Context()); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// TestRolesControl shows that a consumer with Control receives commands over the swarm's bus, and
// that Consumer does not change the caller's Config. Without Options.Control there is no bus.
func TestRolesControl(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := open.Open(t.Context(), "mem://", open.Options{Control: true})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := s.Close(context.Background()); err != nil {
				t.Errorf("close the swarm: %v", err)
			}
		})
		var cfg control.Config
		c, err := s.Consumer(consumer.Config{Report: events.Report{NodeID: "n1"}, Control: &cfg})
		if err != nil {
			t.Fatal(err)
		}
		if cfg.Bus != nil || cfg.Replies != nil {
			t.Error("Consumer has changed the caller's Config")
		}
		running(t, c)
		synctest.Wait()
		others, err := s.Control.Subscribe(t.Context(), events.Filter{Types: []string{control.ReplyEvent}})
		if err != nil {
			t.Fatal(err)
		}
		client, err := control.NewClient(control.ClientConfig{Bus: s.Control, Replies: s.Replies})
		if err != nil {
			t.Fatal(err)
		}
		replies, err := client.Send(t.Context(), control.Command{Do: control.DoPing}, control.Wait{Replies: 1})
		if err != nil || len(replies) != 1 || replies[0].Node != "n1" {
			t.Errorf("ping: %v, %v", replies, err)
		}
		ended, end := context.WithCancel(t.Context())
		end() // replies that have arrived are received nevertheless
		if e, err := others.Receive(ended); err == nil {
			t.Errorf("consumers receive a reply: %+v", e)
		}
	})
	s, err := open.Open(t.Context(), "mem://", open.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Consumer(consumer.Config{Control: &control.Config{}}); err == nil {
		t.Error("a consumer has Control without a bus")
	}
	if err := s.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestRolesLimit shows that limits apply to all processes. They are refused if no server supports
// them.
func TestRolesLimit(t *testing.T) {
	limits := map[string][]limit.Permit{double.Name(): {{Key: "one", Max: 1}}}
	for name, server := range map[string]func(t *testing.T) (string, open.Options){
		"memory":   func(*testing.T) (string, open.Options) { return "mem://", open.Options{} },
		"redis":    func(t *testing.T) (string, open.Options) { return testserver.RequireRedis(t).URL(), open.Options{} },
		"sqlite":   func(t *testing.T) (string, open.Options) { return sqlURLs(t)["sqlite"], open.Options{} },
		"postgres": func(t *testing.T) (string, open.Options) { return sqlURLs(t)["postgres"], open.Options{} },
		"rabbit, results in redis": func(t *testing.T) (string, open.Options) {
			return testserver.RequireRabbit(t).URL(), open.Options{Results: testserver.RequireRedis(t).URL()}
		},
	} {
		t.Run(name, func(t *testing.T) {
			ctx := testwait.Long(t)
			url, o := server(t)
			o.Namespace, o.Limits = testserver.Namespace(), limits
			first := opened(t, url, o)
			var now, most atomic.Int64
			for i := range 2 {
				s := first
				if i > 0 && url != "mem://" {
					s = opened(t, url, o)
				}
				c, err := s.Consumer(consumer.Config{Queues: map[string]consumer.QueueConfig{"default": {Workers: 2}}})
				if err != nil {
					t.Fatal(err)
				}
				if err := double.Handle(c, func(_ context.Context, n int) (int, error) {
					most.Store(max(most.Load(), now.Add(1)))
					defer now.Add(-1)
					<-time.After(10 * time.Millisecond)
					return 2 * n, nil
				}); err != nil {
					t.Fatal(err)
				}
				running(t, c)
			}
			futures, err := double.SubmitAll(ctx, producing(t, first), make([]int, 6))
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range futures {
				if _, err := f.Get(ctx); err != nil {
					t.Fatal(err)
				}
			}
			if n := most.Load(); n != 1 {
				t.Errorf("%d of a task ran at once, the limit is 1", n)
			}
		})
	}
	for _, o := range []open.Options{{Limits: limits}, {Limits: limits, Results: "mem://"}} {
		if _, err := open.Open(t.Context(), "amqp://localhost", o); !errors.Is(err, broker.ErrUnsupported) {
			t.Errorf("limits that no server keeps: %v", err)
		}
	}
}

// TestRolesClosed shows that a closed Swarm refuses new producers and consumers, and that Close may
// be called twice.
func TestRolesClosed(t *testing.T) {
	s := opened(t, "mem://", open.Options{})
	producing(t, s)
	if err := errors.Join(s.Close(t.Context()), s.Close(t.Context())); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Producer(producer.Config{}); err == nil {
		t.Error("a closed Swarm made a producer")
	}
	if _, err := s.Consumer(consumer.Config{}); err == nil {
		t.Error("a closed Swarm made a consumer")
	}
}

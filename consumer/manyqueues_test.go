package consumer_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/internal/testwait"
	"github.com/swarmiji/swarmiji/open"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/task"
)

// queueNames returns n names.
func queueNames(n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("q%05d", i)
	}
	return names
}

// scale is a producer and a consumer of many queues.
type scale struct {
	t        *testing.T
	swarm    *open.Swarm
	producer *producer.Producer
	job      task.Task[int, int]
	ran      sync.Map // queue -> struct{}
	log      lockedBuffer
}

// lockedBuffer is a bytes.Buffer for several goroutines.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// newScale connects and declares the queues.
func newScale(t *testing.T, url string, names []string) *scale {
	t.Helper()
	s := &scale{t: t, job: task.New[int, int]("scale.job", task.WithIgnoreResult(true))}
	var err error
	s.swarm, err = open.Open(t.Context(), url, open.Options{Logger: slog.New(slog.DiscardHandler)})
	must0(t, err)
	t.Cleanup(func() {
		if err := s.swarm.Close(testwait.Long(t)); err != nil {
			t.Error(err)
		}
	})
	var qs []broker.Queue
	for _, name := range names {
		qs = append(qs, broker.Queue{Name: name})
	}
	must0(t, broker.Declare(t.Context(), s.swarm.Broker, qs...))
	s.producer, err = producer.New(producer.Config{Broker: s.swarm.Broker})
	must0(t, err)
	return s
}

// consume consumes the queues until the test ends.
func (s *scale) consume(names []string) {
	s.t.Helper()
	queues := make(map[string]consumer.QueueConfig)
	for _, name := range names {
		queues[name] = consumer.QueueConfig{Workers: 1, Prefetch: 1}
	}
	c, err := consumer.New(consumer.Config{
		Broker: s.swarm.Broker, Queues: queues, Logger: slog.New(slog.NewTextHandler(&s.log, nil)),
	})
	must0(s.t, err)
	must0(s.t, s.job.Handle(c, func(ctx context.Context, n int) (int, error) {
		info, _ := task.FromContext(ctx)
		s.ran.Store(info.Queue, struct{}{})
		return n, nil
	}))
	ctx, cancel := context.WithCancel(context.WithoutCancel(s.t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	s.t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			s.t.Errorf("Run: %v", err)
		}
	})
}

func (s *scale) submit(names []string) {
	s.t.Helper()
	var calls []task.Call
	for _, name := range names {
		calls = append(calls, s.job.Call(1, task.WithQueue(name)))
	}
	_, err := s.producer.SubmitAll(s.t.Context(), calls)
	must0(s.t, err)
}

// missing returns the queues of which no task has run.
func (s *scale) missing(names []string) []string {
	var left []string
	for _, name := range names {
		if _, ok := s.ran.Load(name); !ok {
			left = append(left, name)
		}
	}
	return left
}

// TestManyQueues shows that thousands of queues can be declared and that one process consumes a
// large part of them. Promises: S44.
func TestManyQueues(t *testing.T) {
	for name, tt := range map[string]struct {
		url func(t *testing.T) string
		// here and inHere replace declared and consumed outside of "make thorough"
		declared, consumed, here, inHere int
	}{
		"nats":   {func(t *testing.T) string { return testserver.RequireNATS(t).URL() }, 10_000, 1_100, 1_100, 1_010},
		"redis":  {func(t *testing.T) string { return testserver.RequireRedis(t).URL() }, 10_000, 1_000, 300, 150},
		"rabbit": {func(t *testing.T) string { return testserver.RequireRabbit(t).URL() }, 1_000, 300, 40, 30},
	} {
		t.Run(name, func(t *testing.T) {
			declared, consumed := tt.here, tt.inHere
			if testserver.IsThorough() {
				declared, consumed = tt.declared, tt.consumed
			}
			names := queueNames(declared)
			s := newScale(t, tt.url(t)+"?namespace="+testserver.Namespace(), names)
			s.submit(names[:consumed])
			s.consume(names[:consumed])
			for left := consumed; left > 0; left = len(s.missing(names[:consumed])) {
				within(t, fmt.Sprintf("that a task of one more queue has run, of %d", left), func() bool { return len(s.missing(names[:consumed])) < left })
			}
		})
	}
}

// TestTooManyQueues shows that the queues that could be opened are consumed if the broker allows no
// more consumers, and that the log names the others.
func TestTooManyQueues(t *testing.T) {
	const allowed = 4
	names := queueNames(allowed + 3)
	for name, url := range map[string]func(t *testing.T) string{
		"nats": func(t *testing.T) string {
			srv, ns := testserver.RequireNATS(t), testserver.Namespace()
			newScale(t, srv.URL()+"?namespace="+ns, names[:1]) // makes the stream
			must0(t, srv.LimitConsumers(t.Context(), "SWJ_"+ns, allowed))
			return srv.URL() + "?namespace=" + ns
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScale(t, url(t), names)
			s.submit(names)
			s.consume(names)
			within(t, "that a task of each queue that is open has run", func() bool { return len(s.missing(names[:allowed])) == 0 })
			if left := s.missing(names); len(left) != len(names)-allowed {
				t.Errorf("no task has run of %v", left)
			}
			for _, name := range names[allowed:] {
				if !strings.Contains(s.log.String(), "queue="+name) || !strings.Contains(s.log.String(), broker.ErrTooMany.Error()) {
					t.Errorf("the log says nothing of %s:\n%s", name, s.log.String())
				}
			}
			_, err := s.swarm.Broker.Subscribe(testwait.Long(t), names[allowed], broker.SubscribeOptions{})
			if !errors.Is(err, broker.ErrTooMany) {
				t.Errorf("Subscribe beyond the limit: %v", err)
			}
		})
	}
}

package consumer_test

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/open"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/task"
)

// TestOnServers shows that autoscaling and strict polling also work with brokers that fetch ahead.
func TestOnServers(t *testing.T) {
	for name, url := range map[string]func(t *testing.T) string{
		"rabbit": func(t *testing.T) string { return testserver.RequireRabbit(t).URL() },
		"redis":  func(t *testing.T) string { return testserver.RequireRedis(t).URL() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			at := url(t)
			t.Run("autoscale", func(t *testing.T) { t.Parallel(); autoscaled(t, at) })
			t.Run("poll", func(t *testing.T) { t.Parallel(); polledOn(t, at) })
		})
	}
}

// serverPatience limits each wait of these tests.
const serverPatience = 2 * time.Minute

// within waits until is returns true, and fails the test after serverPatience.
func within(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(serverPatience); !is(); {
		if time.Now().After(end) {
			t.Fatalf("not so in time: %s", what)
		}
		<-time.After(5 * time.Millisecond)
	}
}

// onServer makes a producer and a consumer. start runs the consumer until the test ends.
func onServer(t *testing.T, url string, c consumer.Config, queues ...string) (p *producer.Producer, on *consumer.Consumer, start func()) {
	t.Helper()
	logger := slog.New(slog.DiscardHandler)
	s, err := open.Open(t.Context(), url+"?namespace="+testserver.Namespace(), open.Options{Logger: logger})
	must0(t, err)
	for _, q := range queues {
		must0(t, broker.Declare(t.Context(), s.Broker, broker.Queue{Name: q}))
	}
	c.Broker, c.Results, c.Logger = s.Broker, s.Results, logger
	on, err = consumer.New(c)
	must0(t, err)
	p, err = producer.New(producer.Config{Broker: s.Broker, Results: s.Results, Logger: logger})
	must0(t, err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	started := false
	t.Cleanup(func() {
		cancel()
		if started {
			if err := <-ended; err != nil {
				t.Errorf("Run: %v", err)
			}
		}
		closing, cancel := context.WithTimeout(context.Background(), serverPatience)
		defer cancel()
		_ = p.Close(closing)
		if err := s.Close(closing); err != nil {
			t.Error(err)
		}
	})
	return p, on, func() {
		started = true
		go func() { ended <- on.Run(ctx) }()
	}
}

// autoscaled checks that workers are added while tasks wait, up to the limit, and removed when they
// are idle. Every task runs once.
func autoscaled(t *testing.T, url string) {
	const tasks, most = 60, 6
	p, c, start := onServer(t, url, consumer.Config{Queues: map[string]consumer.QueueConfig{
		"work": {PrefetchMultiplier: 2, Autoscale: &consumer.Autoscale{Min: 1, Max: most, Every: 20 * time.Millisecond, KeepAlive: 60 * time.Millisecond}},
	}}, "work")
	var mu sync.Mutex
	runs := make(map[int]int)
	now, highest := 0, 0
	release := make(chan struct{})
	must0(t, hold.Handle(c, func(ctx context.Context, i int) (int, error) {
		mu.Lock()
		runs[i]++
		now++
		highest = max(highest, now)
		mu.Unlock()
		select {
		case <-release:
		case <-ctx.Done():
		}
		mu.Lock()
		now--
		mu.Unlock()
		return i, nil
	}))
	for i := range tasks {
		_, err := hold.Submit(t.Context(), p, i, task.WithQueue("work"))
		must0(t, err)
	}
	start()
	within(t, "as many run as there may be workers", func() bool { return c.Stats().Active == most })
	if s := c.Stats().Queues[0]; s.Workers != most || s.Prefetch != 2*most {
		t.Errorf("%+v; want %d workers", s, most)
	}
	close(release)
	within(t, "all have run", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(runs) == tasks && now == 0
	})
	within(t, "one worker is left", func() bool { return c.Stats().Queues[0].Workers == 1 })
	mu.Lock()
	defer mu.Unlock()
	for i, n := range runs {
		if n != 1 {
			t.Errorf("task %d ran %d times", i, n)
		}
	}
	if highest > most {
		t.Errorf("%d ran at once, want %d at most", highest, most)
	}
}

// polledOn checks that full queues are emptied in order, and that a later task of a more urgent
// queue runs before the rest.
func polledOn(t *testing.T, url string) {
	const each = 15
	p, c, start := onServer(t, url, consumer.Config{
		Polls: []consumer.Poll{{Queues: []string{"a", "b", "c"}, Workers: 1, Interval: time.Second}},
	}, "a", "b", "c")
	var mu sync.Mutex
	var order strings.Builder
	seen := func() string {
		mu.Lock()
		defer mu.Unlock()
		return order.String()
	}
	late, going := make(chan struct{}), make(chan struct{}, 1)
	must0(t, hold.Handle(c, func(ctx context.Context, i int) (int, error) {
		r, _ := task.FromContext(ctx)
		mu.Lock()
		order.WriteString(r.Queue)
		mu.Unlock()
		if r.Queue == "b" && i == 0 { // the first task of b waits until another task of a was sent
			going <- struct{}{}
			select {
			case <-late:
			case <-ctx.Done():
			}
		}
		if r.Queue == "b" {
			<-time.After(10 * time.Millisecond)
		}
		return 0, nil
	}))
	for _, q := range []string{"c", "b", "a"} {
		for i := range each {
			_, err := hold.Submit(t.Context(), p, i, task.WithQueue(q))
			must0(t, err)
		}
	}
	start()
	select {
	case <-going:
	case <-time.After(serverPatience):
		t.Fatalf("ran %s", seen())
	}
	_, err := hold.Submit(t.Context(), p, 0, task.WithQueue("a"))
	must0(t, err)
	// time for the broker to deliver it, which may take longer than some tasks of b, but not all
	<-time.After(200 * time.Millisecond)
	close(late)
	within(t, "all have run", func() bool { return len(seen()) == 3*each+1 })
	got := seen()
	i := strings.LastIndex(got, "a")
	want := strings.Repeat("a", each) + strings.Repeat("b", each) + strings.Repeat("c", each)
	if rest := got[:i] + got[i+1:]; rest != want || i <= each || i >= 2*each {
		t.Errorf("ran %s, want %s and an a among the b's", got, want)
	}
}

package endtoend_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/internal/testwait"
	"github.com/swarmiji/swarmiji/open"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/task"
)

// TestSleepOutlivesRestarts shows that a task continues after its sleep although meanwhile its
// consumer was stopped, the server was restarted, and another consumer was started.
func TestSleepOutlivesRestarts(t *testing.T) {
	for name, start := range map[string]func(t *testing.T) (url string, restart func(context.Context) error){
		"postgres": func(t *testing.T) (string, func(context.Context) error) {
			s := testserver.OwnPostgres(t, testserver.PostgresConfig{})
			return s.URL(), s.Restart
		},
		"nats": func(t *testing.T) (string, func(context.Context) error) {
			s := testserver.OwnNATS(t, testserver.NATSConfig{})
			return s.URL(), s.Restart
		},
		"redis": func(t *testing.T) (string, func(context.Context) error) {
			s := testserver.OwnRedis(t, testserver.RedisConfig{})
			return s.URL(), s.Restart
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url, restart := start(t)
			sleepOver(t, url, restart)
		})
	}
}

func sleepOver(t *testing.T, url string, restart func(context.Context) error) {
	s, err := open.Open(t.Context(), url, open.Options{Namespace: testserver.Namespace(), Logger: quiet()})
	must(t, err)
	p, err := producer.New(producer.Config{Broker: s.Broker, Results: s.Results, Logger: quiet()})
	must(t, err)
	attempts := make(chan error, 100)
	sleeper := task.New[int, int]("sleeper")
	var runs int
	consume := func() (stop func()) {
		c, err := consumer.New(consumer.Config{Broker: s.Broker, Results: s.Results, Logger: quiet()})
		must(t, err)
		must(t, sleeper.Handle(c, func(ctx context.Context, n int) (int, error) {
			_, err := task.Checkpoint(ctx, "once", func(context.Context) (int, error) {
				runs++
				return runs, nil
			})
			if err == nil {
				err = task.Sleep(ctx, "nap", 2*time.Second)
			}
			attempts <- err
			return n, err
		}))
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- c.Run(ctx) }()
		return func() {
			cancel()
			must(t, <-ended)
		}
	}
	stop := consume()
	f, err := sleeper.Submit(t.Context(), p, 3)
	must(t, err)
	if first := <-attempts; task.VerdictOf(first) == nil {
		t.Fatalf("the first attempt: %v", first)
	}
	stop()
	must(t, restart(testwait.Long(t)))
	stop = consume()
	if got, err := f.Get(testwait.Long(t)); got != 3 || err != nil {
		t.Errorf("the task ended with %d, %v", got, err)
	}
	stop()
	if runs != 1 {
		t.Errorf("the checkpoint ran %d times", runs)
	}
	ctx := context.Background()
	must(t, errors.Join(p.Close(ctx), s.Close(ctx)))
}

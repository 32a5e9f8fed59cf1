package consumer_test

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/broker/membroker"
	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/internal/testwait"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/settings"
	"github.com/swarmiji/swarmiji/settings/memsettings"
	"github.com/swarmiji/swarmiji/task"
	"github.com/swarmiji/swarmiji/tx/sqltx"
)

// TestBreakerDoubles shows that a breaker that fails again pauses for twice the time, up to
// MaxPause. Each pause has one attempt, and a success resets it.
func TestBreakerDoubles(t *testing.T) {
	ctx := testwait.Long(t)
	server, store := membroker.NewServer(membroker.Config{}), memsettings.New()
	defer store.Close(ctx)
	quiet := slog.New(slog.DiscardHandler)
	p, err := producer.New(producer.Config{Broker: server.Connect(), Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close(ctx)
	c, err := consumer.New(consumer.Config{
		Broker: server.Connect(), Settings: store, Logger: quiet,
		Breakers: map[string]consumer.Breaker{"mail": {Failures: 1, Of: 1, Pause: 200 * time.Millisecond, MaxPause: 400 * time.Millisecond}},
	})
	if err != nil {
		t.Fatal(err)
	}
	mail := task.New[int, int]("mail")
	attempts := make(chan int, 100)
	if err := mail.Handle(c, func(_ context.Context, n int) (int, error) {
		attempts <- n
		if len(attempts) < 4 {
			return 0, task.Retry(errors.New("broken"))
		}
		return n, nil
	}); err != nil {
		t.Fatal(err)
	}
	run, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- c.Run(run) }()
	defer func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	// The delay lets the consumer store each pause first: attempts that start before it do not count.
	if _, err := mail.Submit(ctx, p, 1, task.WithMaxRetries(10), task.WithRetryDelay(150*time.Millisecond), task.WithIgnoreResult(true)); err != nil {
		t.Fatal(err)
	}
	key := settings.TaskBreaker("mail")
	most := settings.Breaker{}
	testwait.Until(t, "the task succeeds and the breaker is reset", func() bool {
		v, found, err := key.Get(ctx, store)
		if err != nil {
			t.Fatal(err)
		}
		if found && v.Trips > most.Trips {
			most = v
		}
		return !found && len(attempts) == 4
	})
	if most.Trips != 3 || most.Pause != 400*time.Millisecond || most.Why == "" {
		t.Errorf("the last pause was %+v", most)
	}
}

// TestSettingsRefused shows that New names each part of the configuration that needs a store, and
// each invalid breaker.
func TestSettingsRefused(t *testing.T) {
	_, err := consumer.New(consumer.Config{
		Broker: membroker.NewServer(membroker.Config{}).Connect(), Group: "a b", Breakers: map[string]consumer.Breaker{"mail": {Failures: 3, Of: 2}},
		Queues: map[string]consumer.QueueConfig{"work": {Breaker: &consumer.Breaker{Failures: 1, Of: 1, Pause: time.Hour, MaxPause: time.Minute}}},
	})
	if err == nil {
		t.Fatal("New has accepted it")
	}
	for _, want := range []string{"need Settings", "Group", "3 failures of 2", "needs Config.Settings", "Pause is 1h0m0s"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not say %q: %v", want, err)
		}
	}
}

// TestBreakerOfSettleTx shows that the end of a task counts. The error of a handler that has
// committed this end, or has rolled it back, does not count.
func TestBreakerOfSettleTx(t *testing.T) {
	ctx, store := testwait.Long(t), memsettings.New()
	defer store.Close(ctx)
	broken := consumer.Breaker{Failures: 1, Of: 1, Pause: time.Hour}
	s := newTxSwarm(t, databases(t)["sqlite"], func(c *consumer.Config) {
		c.Settings, c.Breakers = store, map[string]consumer.Breaker{"committed": broken, "snoozed": broken, "forgotten": broken}
	})
	errLater := errors.New("after the commit")
	ends := make(map[string]task.Task[int, int])
	for name, end := range map[string]func(*sql.Tx) error{
		"committed": func(own *sql.Tx) error { return errors.Join(own.Commit(), errLater) },
		"snoozed":   func(own *sql.Tx) error { return errors.Join(own.Rollback(), task.Snooze(time.Hour)) },
		"forgotten": func(own *sql.Tx) error { return own.Rollback() },
	} {
		ends[name] = task.New[int, int](name, task.WithMaxRetries(0))
		if err := ends[name].Handle(s.c, func(ctx context.Context, n int) (int, error) {
			own := s.begin(ctx, name)
			if err := task.SettleTx(ctx, sqltx.Wrap(own), n); err != nil {
				t.Error(err)
			}
			return n, end(own)
		}); err != nil {
			t.Fatal(err)
		}
	}
	stop := s.run(t)
	for name, want := range map[string]error{"committed": nil, "forgotten": task.ErrNotCommitted} {
		f, err := ends[name].Submit(ctx, s.p, 1)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.Get(ctx); (err == nil) != (want == nil) {
			t.Errorf("%s: %v, want %v", name, err, want)
		}
	}
	if _, err := ends["snoozed"].Submit(ctx, s.p, 1); err != nil {
		t.Fatal(err)
	}
	testwait.Until(t, "the third task is snoozed", func() bool {
		st, err := s.broker.Stats(ctx, "default")
		return err == nil && st.Delayed == 1
	})
	stop() // it waits until the breakers are stored
	for name, want := range map[string]bool{"committed": false, "snoozed": false, "forgotten": true} {
		if b, tripped, err := settings.TaskBreaker(name).Get(ctx, store); tripped != want || err != nil {
			t.Errorf("the breaker of %s has tripped: %v (%s), %v; want %v", name, tripped, b.Why, err, want)
		}
	}
}

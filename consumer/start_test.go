package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/broker/membroker"
	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/events/memevents"
	"github.com/swarmiji/swarmiji/revoke"
)

// refusing is a broker whose Declare fails as the test says.
type refusing struct {
	*membroker.Broker
	declare func(ctx context.Context) error
}

func (b refusing) Declare(ctx context.Context, qs ...broker.Queue) error {
	if err := b.declare(ctx); err != nil {
		return err
	}
	return b.Broker.Declare(ctx, qs...)
}

// retainer is a bus that stores revocations. It has no answers until a time.
type retainer struct {
	*memevents.Bus
	until time.Time
}

func (b retainer) Replay(ctx context.Context, f events.Filter, since time.Time) (events.Subscription, error) {
	if time.Now().Before(b.until) {
		return nil, fmt.Errorf("no route: %w", events.ErrUnavailable)
	}
	return b.Bus.Replay(ctx, f, since)
}

// startTable returns a table whose broker declares as the test says, and whose revocations cannot
// be read for the first ten minutes.
func startTable(t *testing.T, log *lines, declare func(ctx context.Context) error) (b *table, closeAll func()) {
	t.Helper()
	logger := slog.New(slog.NewTextHandler(log, nil))
	bus := memevents.New(memevents.Config{Retain: revoke.Retention()})
	list, err := revoke.New(revoke.Config{Events: retainer{bus, time.Now().Add(10 * time.Minute)}, Logger: logger})
	must0(t, err)
	b = newTable(t, func(c *consumer.Config) {
		c.Broker = refusing{c.Broker.(*membroker.Broker), declare}
		c.Revocations, c.Logger = list, logger
	})
	return b, func() {
		_ = b.p.Close(t.Context())
		_ = b.store.Close(t.Context())
		_ = list.Close(t.Context())
		_ = bus.Close(t.Context())
	}
}

// TestRunReturnsARefusal shows that Run returns the error of a broker that refuses the credentials.
// The bus of the revocations is away as well.
func TestRunReturnsARefusal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &lines{}
		b, closeAll := startTable(t, log, func(context.Context) error { return fmt.Errorf("%w: wrong password", broker.ErrAccess) })
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if err := b.c.Run(ctx); !errors.Is(err, broker.ErrAccess) || ctx.Err() != nil {
			t.Errorf("Run of a consumer with a wrong password: %v (%v)", err, ctx.Err())
		}
		if n := log.count("the broker cannot be reached"); n != 0 {
			t.Errorf("%d lines say that a broker that has answered cannot be reached", n)
		}
		closeAll()
	})
}

// TestBrokerAwayAtTheStart shows that a consumer without its broker logs that once in a second,
// with the queue and the cause. Later it consumes.
func TestBrokerAwayAtTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &lines{}
		until := time.Now().Add(5 * time.Minute)
		b, closeAll := startTable(t, log, func(ctx context.Context) error {
			if time.Now().After(until) {
				return nil
			}
			<-ctx.Done() // as the adapters wait for their connection
			return fmt.Errorf("%w: dial 127.0.0.1:1: connection refused", broker.ErrUnavailable)
		})
		b.run()
		time.Sleep(time.Second)
		synctest.Wait()
		told := func() int { return log.count("the broker cannot be reached") }
		if told() != 1 || log.count("127.0.0.1:1: connection refused") != 1 || log.count("queue=default") != 1 || log.count("repeated") != 1 {
			t.Errorf("after a second the log is:\n%s", log.text())
		}
		time.Sleep(4 * time.Minute)
		if n := log.count("level=WARN"); n != 1 {
			t.Errorf("after 4 minutes there are %d warnings of one interruption:\n%s", n, log.text())
		}
		f := b.submit(3)
		if got, err := f.Get(t.Context()); err != nil || got != 3 {
			t.Errorf("when the broker was back: %d, %v", got, err)
		}
		if n := log.count("revocations cannot be received"); n != 1 {
			t.Errorf("%d lines about one interruption of the revocations", n)
		}
		if err := b.stop(); err != nil {
			t.Error(err)
		}
		closeAll()
	})
}

// TestStartIsLogged shows that a consumer logs its queues and handlers when it starts, and warns if
// it has no handler.
func TestStartIsLogged(t *testing.T) {
	for _, handlers := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			log := &lines{}
			logger := slog.New(slog.NewTextHandler(log, nil))
			conn := membroker.NewServer(membroker.Config{}).Connect()
			c, err := consumer.New(consumer.Config{
				Broker: conn, Logger: logger, Revocations: revoke.NewLocal(logger),
				Queues: map[string]consumer.QueueConfig{"mail": {}, "bill": {}},
			})
			must0(t, err)
			if handlers {
				must0(t, echo.Handle(c, func(_ context.Context, i int) (int, error) { return i, nil }))
			}
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- c.Run(ctx) }()
			synctest.Wait()
			line, warnings := `msg="consumer started" queues="bill mail" handlers=1 tasks=echo`, 0
			if !handlers {
				line, warnings = `level=WARN msg="consumer started without a handler`, 1
			}
			if log.count(line) != 1 || log.count("queues=\"bill mail\"") != 1 || log.count("level=WARN") != warnings {
				t.Errorf("the log of the start is:\n%s", log.text())
			}
			cancel()
			must0(t, <-done)
			_ = conn.Close(t.Context())
		})
	}
}

package amqpbroker_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/broker/amqpbroker"
	"github.com/swarmiji/swarmiji/connect/amqpconnect"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/internal/testwait"
)

// levelsStream creates the stream of a queue's levels, without an entry.
func levelsStream(t testing.TB, name string) {
	t.Helper()
	raw(t, testserver.RequireRabbit(t).URL(), func(ch *amqp.Channel) error {
		_, err := ch.QueueDeclare(name, true, false, false, false, amqp.Table{"x-queue-type": "stream"})
		return err
	})
}

// TestInterruptedLookAtLevels shows that a reader whose channel ends reads again, and does not
// conclude that the queue has no levels.
func TestInterruptedLookAtLevels(t *testing.T) {
	t.Parallel()
	srv := testserver.RequireRabbit(t)
	line := testserver.NewRelay(t, srv.Addr())
	b := connect(t, amqpbroker.Config{Connect: amqpconnect.Config{URLs: []string{line.URL(srv.URL())}}})
	q := testserver.Namespace()
	stream := "swj.default.levels." + q
	levelsStream(t, stream)
	type subscribed struct {
		s   broker.Subscription
		err error
	}
	res := make(chan subscribed, 1)
	ctx := testwait.Long(t)
	go func() {
		s, err := b.Subscribe(ctx, q, broker.SubscribeOptions{Prefetch: 2})
		res <- subscribed{s, err}
	}()
	tick := time.NewTicker(100 * time.Millisecond) // some of the cuts hit a reader that waits
	defer tick.Stop()
	for range 6 {
		<-tick.C
		line.Sever()
	}
	raw(t, srv.URL(), func(ch *amqp.Channel) error {
		return ch.PublishWithContext(ctx, "", stream, false, false, amqp.Publishing{Body: []byte("10,100")})
	})
	got := <-res
	if got.err != nil {
		t.Fatalf("Subscribe: %v", got.err)
	}
	urgent := message("urgent")
	urgent.Priority = 1
	publish(t, b, q, urgent)
	ack(t, receive(t, got.s))
	raw(t, srv.URL(), func(ch *amqp.Channel) error { // it fails unless the level was loaded
		_, err := ch.QueueDeclarePassive("swj.default.q."+q+":p10", true, false, false, false, nil)
		return err
	})
}

// TestLevelsThatWereNeverWritten shows that a stream without an entry does not mean one level,
// since its creator may be slow or dead. A declaration writes the entry.
func TestLevelsThatWereNeverWritten(t *testing.T) {
	t.Parallel()
	for name, want := range map[string][]int{"levels": {10, 100}, "one level": nil} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := connect(t, amqpbroker.Config{})
			q := testserver.Namespace()
			levelsStream(t, "swj.default.levels."+q)
			ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
			defer cancel()
			if _, err := b.Subscribe(ctx, q, broker.SubscribeOptions{}); !errors.Is(err, broker.ErrUnavailable) || ctx.Err() != nil {
				t.Errorf("Subscribe: %v, want ErrUnavailable before ctx ends", err)
			}
			if err := b.Declare(testwait.Long(t), broker.Queue{Name: q, Levels: want}); err != nil {
				t.Fatalf("Declare: %v", err)
			}
			other := connect(t, amqpbroker.Config{})
			s := subscribe(t, other, q, 2)
			m := message("urgent")
			m.Priority = 1
			publish(t, b, q, m)
			ack(t, receive(t, s))
		})
	}
}

// TestLevelsDeclaredByTwo shows that several processes may declare a queue with levels at once. The
// server closes connections that use a stream which another one is creating.
func TestLevelsDeclaredByTwo(t *testing.T) {
	t.Parallel()
	brokers := []*amqpbroker.Broker{connect(t, amqpbroker.Config{}), connect(t, amqpbroker.Config{})}
	for range 4 {
		q := broker.Queue{Name: testserver.Namespace(), Levels: []int{10, 100}}
		var wg sync.WaitGroup
		for i := range 4 {
			wg.Go(func() {
				if err := brokers[i%2].Declare(testwait.Long(t), q); err != nil {
					t.Errorf("Declare: %v", err)
				}
			})
		}
		wg.Wait()
		for _, b := range brokers {
			if d, err := b.Describe(testwait.Long(t), q.Name); err != nil || len(d.Levels) != 2 {
				t.Errorf("Describe: %+v, %v", d, err)
			}
		}
	}
}

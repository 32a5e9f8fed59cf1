package amqpbroker_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/broker/amqpbroker"
	"github.com/swarmiji/swarmiji/internal/testserver"
)

// The benchmarks are pairs, ours and the raw client's with the same guarantees, each on a quorum
// queue. Compare the two of a pair within one run: go test -run=- -bench=. -benchtime=20000x
// -count=3.

const benchBody = 100

func rawChannel(b *testing.B) (*amqp.Channel, string) {
	b.Helper()
	conn, err := amqp.Dial(testserver.RequireRabbit(b).URL())
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = conn.Close() })
	ch, err := conn.Channel()
	if err != nil {
		b.Fatal(err)
	}
	q := "raw." + testserver.Namespace()
	if _, err := ch.QueueDeclare(q, true, false, false, false, amqp.Table{"x-queue-type": "quorum"}); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _, _ = ch.QueueDelete(q, false, false, false) })
	if err := ch.Confirm(false); err != nil {
		b.Fatal(err)
	}
	go func() {
		for range ch.NotifyReturn(make(chan amqp.Return, 16)) {
			panic("returned")
		}
	}()
	return ch, q
}

func rawPublish(ch *amqp.Channel, q string, body []byte) (*amqp.DeferredConfirmation, error) {
	return ch.PublishWithDeferredConfirm("", q, true, false, amqp.Publishing{MessageId: "0190a5b0-0000-7000-8000-000000000000", DeliveryMode: amqp.Persistent, Body: body})
}

func ours(b *testing.B) (*amqpbroker.Broker, string) {
	b.Helper()
	br := connect(b, amqpbroker.Config{})
	return br, declared(b, br)
}

func task() *broker.Message {
	return &broker.Message{ID: "0190a5b0-0000-7000-8000-000000000000", Body: make([]byte, benchBody), Priority: 100}
}

func BenchmarkBatch1000(b *testing.B) {
	b.Run("raw", func(b *testing.B) {
		ch, q := rawChannel(b)
		body := make([]byte, benchBody)
		b.ReportAllocs()
		b.ResetTimer()
		rawFill(b, ch, q, body, b.N)
	})
	b.Run("ours", func(b *testing.B) {
		br, q := ours(b)
		b.ReportAllocs()
		b.ResetTimer()
		fill(b, br, q, b.N)
	})
}

func rawFill(b *testing.B, ch *amqp.Channel, q string, body []byte, n int) {
	dcs := make([]*amqp.DeferredConfirmation, 0, 1000)
	for done := 0; done < n; done += len(dcs) {
		dcs = dcs[:0]
		for range min(1000, n-done) {
			dc, err := rawPublish(ch, q, body)
			if err != nil {
				b.Fatal(err)
			}
			dcs = append(dcs, dc)
		}
		for _, dc := range dcs {
			if !dc.Wait() {
				b.Fatal("not confirmed")
			}
		}
	}
}

func fill(b *testing.B, br *amqpbroker.Broker, q string, n int) {
	ms := make([]broker.Outgoing, 0, 1000)
	for done := 0; done < n; done += len(ms) {
		ms = ms[:0]
		for range min(1000, n-done) {
			ms = append(ms, broker.Outgoing{Queue: q, Message: task()})
		}
		if err := br.PublishBatch(context.Background(), ms); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkPublish(b *testing.B) {
	for _, c := range []int{1, 256} {
		b.Run(fmt.Sprintf("%d/raw", c), func(b *testing.B) {
			ch, q := rawChannel(b)
			body := make([]byte, benchBody)
			b.ReportAllocs()
			b.ResetTimer()
			inParallel(b, c, func() error {
				dc, err := rawPublish(ch, q, body)
				if err == nil && !dc.Wait() {
					err = fmt.Errorf("not confirmed")
				}
				return err
			})
		})
		b.Run(fmt.Sprintf("%d/ours", c), func(b *testing.B) {
			br, q := ours(b)
			m := task()
			b.ReportAllocs()
			b.ResetTimer()
			inParallel(b, c, func() error { return br.Publish(context.Background(), q, m) })
		})
	}
}

// inParallel calls fn b.N times in c goroutines.
func inParallel(b *testing.B, c int, fn func() error) {
	work := make(chan struct{}, c)
	var wg sync.WaitGroup
	for range c {
		wg.Go(func() {
			for range work {
				if err := fn(); err != nil {
					b.Error(err)
				}
			}
		})
	}
	for range b.N {
		work <- struct{}{}
	}
	close(work)
	wg.Wait()
}

func BenchmarkDrain(b *testing.B) {
	const prefetch = 256
	for _, every := range []int{1, 64} {
		b.Run(fmt.Sprintf("raw/ack-every-%d", every), func(b *testing.B) {
			ch, q := rawChannel(b)
			rawFill(b, ch, q, make([]byte, benchBody), b.N)
			if err := ch.Qos(prefetch, 0, false); err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			b.ResetTimer()
			ds, err := ch.Consume(q, "", false, false, false, false, nil)
			if err != nil {
				b.Fatal(err)
			}
			for n := 1; n <= b.N; n++ {
				d := <-ds
				if every == 1 || n%every == 0 || n == b.N {
					if err := d.Ack(every > 1); err != nil {
						b.Fatal(err)
					}
				}
			}
		})
	}
	b.Run("ours", func(b *testing.B) {
		br, q := ours(b)
		fill(b, br, q, b.N)
		ctx := context.Background()
		b.ReportAllocs()
		b.ResetTimer()
		s, err := br.Subscribe(ctx, q, broker.SubscribeOptions{Prefetch: prefetch})
		if err != nil {
			b.Fatal(err)
		}
		for range b.N {
			d, err := s.Receive(ctx)
			if err != nil {
				b.Fatal(err)
			}
			if err := d.Ack(ctx); err != nil {
				b.Fatal(err)
			}
		}
		b.StopTimer()
		ctx, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		if err := s.Close(ctx); err != nil {
			b.Fatal(err)
		}
	})
}

package brokertest

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/swarmiji/swarmiji/broker"
)

// benchWidth is the number of publishing goroutines and of receiving goroutines.
const benchWidth = 64

// bench runs the benchmarks of Bench as sub-benchmarks of b.
func bench(b *testing.B, open func(t testing.TB) *Harness) {
	b.Run("publish", func(b *testing.B) {
		benchQueue(b, open, func(ctx context.Context, w *world, br broker.Broker, q string) {
			w.benchPublish(ctx, br, q, b.N)
		})
	})
	b.Run("publish, receive and ack", func(b *testing.B) {
		benchQueue(b, open, func(ctx context.Context, w *world, br broker.Broker, q string) {
			s := w.subscribe(br, q, 4*benchWidth)
			var wg sync.WaitGroup
			wg.Go(func() { w.benchPublish(ctx, br, q, b.N) })
			for g := range benchWidth {
				wg.Go(func() {
					for i := g; i < b.N; i += benchWidth {
						d, err := s.Receive(ctx)
						if err == nil {
							err = d.Ack(ctx)
						}
						if err != nil {
							w.Errorf("Receive and Ack: %v", err)
							return
						}
					}
				})
			}
			wg.Wait()
		})
	})
	b.Run("one at a time", func(b *testing.B) {
		benchQueue(b, open, func(_ context.Context, w *world, br broker.Broker, q string) {
			s := w.subscribe(br, q, 1)
			for i := range b.N {
				w.publish(br, q, benchMsg(i))
				w.ack(w.receive(s))
			}
		})
	})
}

// benchQueue measures run, on a new queue of a Broker in a new namespace of open. It closes the
// Broker at the end.
func benchQueue(b *testing.B, open func(t testing.TB) *Harness, run func(ctx context.Context, w *world, br broker.Broker, queue string)) {
	w := newWorld(b, open(b))
	defer w.CloseAll()
	br := w.Open()
	q := w.queue(br, "bench")
	b.ReportAllocs()
	b.ResetTimer()
	run(context.Background(), w, br, q)
	b.StopTimer()
}

// benchPublish publishes n messages from benchWidth goroutines, and returns when all have ended. An
// error fails the benchmark and ends its goroutine.
func (w *world) benchPublish(ctx context.Context, b broker.Broker, queue string, n int) {
	var wg sync.WaitGroup
	for g := range benchWidth {
		wg.Go(func() {
			for i := g; i < n; i += benchWidth {
				if err := b.Publish(ctx, queue, benchMsg(i)); err != nil {
					w.Errorf("Publish: %v", err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// benchMsg returns a message with the number i as its ID and a body of 100 bytes.
func benchMsg(i int) *broker.Message {
	return &broker.Message{ID: fmt.Sprint(i), ContentType: "application/octet-stream", Body: make([]byte, 100), Priority: 100}
}

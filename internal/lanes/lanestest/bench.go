package lanestest

import (
	"crypto/rand"
	"fmt"
	"testing"

	"github.com/swarmiji/swarmiji/broker"
)

// Bench compares a fair queue with a plain one: b.N messages of 10, 10,000 and 100,000 keys are
// published in batches and then drained. open returns a new Broker that is closed at the end of the
// benchmark.
func Bench(b *testing.B, open func(t testing.TB) broker.Broker) {
	for _, keys := range []int{10, 10_000, 100_000} {
		for _, fair := range []bool{false, true} {
			b.Run(fmt.Sprintf("keys=%d/fair=%v", keys, fair), func(b *testing.B) {
				ctx, q := b.Context(), broker.Queue{Name: rand.Text(), Fair: fair}
				br := open(b)
				if err := broker.Declare(ctx, br, q); err != nil {
					b.Fatal(err)
				}
				b.ResetTimer()
				var ms []broker.Outgoing
				for i := range b.N {
					ms = append(ms, broker.Outgoing{Queue: q.Name, Message: &broker.Message{
						ID: fmt.Sprintf("m-%d", i), Priority: 100, Key: fmt.Sprintf("key-%d", i%keys), Body: []byte("{}"),
					}})
					if len(ms) < batch && i < b.N-1 {
						continue
					}
					if err := broker.PublishBatch(ctx, br, ms); err != nil {
						b.Fatal(err)
					}
					ms = nil
				}
				s, err := br.Subscribe(ctx, q.Name, broker.SubscribeOptions{Prefetch: 256})
				if err != nil {
					b.Fatal(err)
				}
				for range b.N {
					d, err := s.Receive(ctx)
					if err == nil {
						err = d.Ack(ctx)
					}
					if err != nil {
						b.Fatal(err)
					}
				}
				b.StopTimer()
				if err := s.Close(ctx); err != nil {
					b.Fatal(err)
				}
			})
		}
	}
}

package membroker_test

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"testing"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/broker/membroker"
)

// BenchmarkPipe measures Publish, Receive and Ack of each message, with the given goroutines on
// each side. The message and its id are two of the allocations.
func BenchmarkPipe(b *testing.B) {
	for _, c := range []struct{ publishers, receivers int }{{1, 1}, {1, 8}, {8, 1}, {8, 8}} {
		b.Run(fmt.Sprintf("publishers=%d/receivers=%d", c.publishers, c.receivers), func(b *testing.B) {
			ctx := context.Background()
			br := membroker.New()
			if err := br.Declare(ctx, broker.Queue{Name: "q"}); err != nil {
				b.Fatal(err)
			}
			sub, err := br.Subscribe(ctx, "q", broker.SubscribeOptions{Prefetch: 256})
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			var wg sync.WaitGroup
			body := make([]byte, 100)
			b.ResetTimer()
			for p := range c.publishers {
				wg.Go(func() {
					for i := p; i < b.N; i += c.publishers {
						if err := br.Publish(ctx, "q", &broker.Message{ID: strconv.Itoa(i), Body: body}); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			for r := range c.receivers {
				wg.Go(func() {
					for i := r; i < b.N; i += c.receivers {
						d, err := sub.Receive(ctx)
						if err == nil {
							err = d.Ack(ctx)
						}
						if err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			wg.Wait()
			b.StopTimer()
			if err := br.Close(ctx); err != nil {
				b.Error(err)
			}
		})
	}
}

package amqpbroker_test

import (
	"context"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/broker"
)

// BenchmarkAckSync measures tasks that run at most once, without faults.
func BenchmarkAckSync(b *testing.B) {
	for _, width := range []int{1, 64} {
		b.Run(strconv.Itoa(width), func(b *testing.B) {
			br, q := ours(b)
			ctx := context.Background()
			ms := make([]broker.Outgoing, b.N)
			for i := range ms {
				ms[i] = broker.Outgoing{Queue: q, Message: message(strconv.Itoa(i))}
			}
			if err := br.PublishBatch(ctx, ms); err != nil {
				b.Fatal(err)
			}
			s := subscribe(b, br, q, 2*width)
			slots := make(chan struct{}, width)
			var wg sync.WaitGroup
			var mu sync.Mutex
			var sum time.Duration
			b.ResetTimer()
			for range b.N {
				d := receive(b, s)
				slots <- struct{}{}
				wg.Go(func() {
					begin := time.Now()
					if err := broker.AckSync(ctx, d); err != nil {
						b.Error(err)
					}
					took := time.Since(begin)
					mu.Lock()
					sum += took
					mu.Unlock()
					<-slots
				})
			}
			wg.Wait()
			b.ReportMetric(float64(sum.Microseconds())/float64(b.N), "µs/ack")
		})
	}
}

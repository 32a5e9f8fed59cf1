package sqlbroker_test

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/testserver"
)

// BenchmarkFair stores messages in a queue and drains it: plain, and fair with few and many keys.
func BenchmarkFair(b *testing.B) {
	urls := map[string]func() string{
		"postgres": func() string { return testserver.RequirePostgres(b).URL() },
		"sqlite":   func() string { return "sqlite://" + filepath.Join(memoryDir(b), "app.db") },
	}
	for name, url := range urls {
		for _, keys := range []int{0, 10, 10_000, 100_000} {
			b.Run(fmt.Sprintf("%s/keys=%d", name, keys), func(b *testing.B) {
				benchFair(b, url(), keys)
			})
		}
	}
}

// benchFair stores messages of so many keys and drains the queue, once for each iteration. 0 keys:
// a plain queue.
func benchFair(b *testing.B, url string, keys int) {
	const messages, producers = 100_000, 4
	ctx := context.Background()
	broke := open(b, config(b, url, testserver.Namespace()))
	defer func() { _ = broke.Close(ctx) }()
	var stored, drained time.Duration
	for n := 0; b.Loop(); n++ {
		queue := fmt.Sprint("q", n)
		if err := broke.Declare(ctx, broker.Queue{Name: queue, Fair: keys > 0}); err != nil {
			b.Fatal(err)
		}
		begun := time.Now()
		var work sync.WaitGroup
		for p := range producers {
			work.Go(func() {
				for at := p * 500; at < messages; at += producers * 500 {
					ms := make([]broker.Outgoing, 500)
					for i := range ms {
						m := &broker.Message{ID: fmt.Sprintf("0192a6c5-7d1e-7aaa-8000-%012d", at+i), Priority: 100, Body: make([]byte, 200), ContentType: "application/json"}
						m.Key = fmt.Sprint("tenant-", (at+i)*7919%max(1, keys))
						ms[i] = broker.Outgoing{Queue: queue, Message: m}
					}
					if err := broke.PublishBatch(ctx, ms); err != nil {
						b.Error(err)
					}
				}
			})
		}
		work.Wait()
		stored += time.Since(begun)
		begun = time.Now()
		s, err := broke.Subscribe(ctx, queue, broker.SubscribeOptions{Prefetch: 256})
		if err != nil {
			b.Fatal(err)
		}
		for range messages {
			d, err := s.Receive(ctx)
			if err != nil {
				b.Fatal(err)
			}
			if err := d.Ack(ctx); err != nil {
				b.Fatal(err)
			}
		}
		if err := s.Close(ctx); err != nil {
			b.Fatal(err)
		}
		drained += time.Since(begun)
	}
	b.ReportMetric(float64(stored.Microseconds())/float64(b.N)/messages, "store-us/msg")
	b.ReportMetric(float64(drained.Microseconds())/float64(b.N)/messages, "drain-us/msg")
	b.ReportMetric(0, "ns/op")
}

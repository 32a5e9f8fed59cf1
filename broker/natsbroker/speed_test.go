package natsbroker_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/broker/natsbroker"
	"github.com/swarmiji/swarmiji/internal/testserver"
)

// The benchmarks come in pairs, ours and the raw client's with the same stream settings, subjects, Nats-Msg-Id, expected
// sequence and kind of acknowledgement. Compare the two of a pair within one run:
// go test -run=- -bench=. -benchtime=100000x -count=3.

const (
	benchBody     = 100
	benchPrefetch = 256
)

func benchID(i int) string { return fmt.Sprintf("0190a5b0-0000-7000-8000-%012d", i) }

// raw is a stream like that of the adapter, with the bare client.
type raw struct {
	js     jetstream.JetStream
	stream string
	prefix string
	plain  bool // without what the adapter adds to a message
}

func newRaw(b *testing.B, plain bool) *raw {
	b.Helper()
	nc, err := nats.Connect(testserver.RequireNATS(b).URL())
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		b.Fatal(err)
	}
	r := &raw{js: js, stream: "RAW_" + testserver.Namespace(), plain: plain}
	r.prefix = r.stream + ".T.q.0."
	_, err = js.CreateStream(b.Context(), jetstream.StreamConfig{
		Name: r.stream, Subjects: []string{r.stream + ".T.*.*.*", r.stream + ".S.*.*", r.stream + ".D.*.*.*"},
		Retention: jetstream.WorkQueuePolicy, Storage: jetstream.FileStorage, MaxMsgsPerSubject: 1, Duplicates: natsbroker.DefaultDedupe,
		AllowRollup: true, AllowDirect: true, AllowMsgTTL: true, AllowMsgSchedules: true, AllowAtomicPublish: true,
	})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = js.DeleteStream(context.Background(), r.stream) })
	return r
}

func (r *raw) msg(i int, body []byte) *nats.Msg {
	id := benchID(i)
	m := &nats.Msg{Subject: r.prefix + id, Data: body, Header: nats.Header{"Nats-Msg-Id": {id}}}
	if !r.plain {
		m.Header["Nats-Expected-Last-Subject-Sequence"] = []string{"0"}
	}
	return m
}

func (r *raw) fill(b *testing.B, n int) {
	body := make([]byte, benchBody)
	acks := make([]jetstream.PubAckFuture, 0, 1000)
	for done := 0; done < n; done += len(acks) {
		acks = acks[:0]
		for i := range min(1000, n-done) {
			a, err := r.js.PublishMsgAsync(r.msg(done+i, body))
			if err != nil {
				b.Fatal(err)
			}
			acks = append(acks, a)
		}
		for _, a := range acks {
			select {
			case <-a.Ok():
			case err := <-a.Err():
				b.Fatal(err)
			}
		}
	}
}

func ours(b *testing.B) (*natsbroker.Broker, string) {
	b.Helper()
	br := open(b, natsbroker.Config{URLs: []string{testserver.RequireNATS(b).URL()}, Namespace: testserver.Namespace()})
	b.Cleanup(func() { _ = br.Close(context.Background()) })
	if err := br.Declare(b.Context(), broker.Queue{Name: "q"}); err != nil {
		b.Fatal(err)
	}
	return br, "q"
}

func task(i int, body []byte) *broker.Message {
	return &broker.Message{ID: benchID(i), ContentType: "application/x-bench", Body: body, Priority: 100}
}

func fill(b *testing.B, br *natsbroker.Broker, q string, n int) {
	body := make([]byte, benchBody)
	ms := make([]broker.Outgoing, 0, 1000)
	for done := 0; done < n; done += len(ms) {
		ms = ms[:0]
		for i := range min(1000, n-done) {
			ms = append(ms, broker.Outgoing{Queue: q, Message: task(done+i, body)})
		}
		if err := br.PublishBatch(context.Background(), ms); err != nil {
			b.Fatal(err)
		}
	}
}

// rate reports messages a second, which is easier to compare than nanoseconds.
func rate(b *testing.B) { b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "msg/s") }

func BenchmarkBatch1000(b *testing.B) {
	for _, plain := range []bool{true, false} {
		b.Run(fmt.Sprintf("raw/plain=%v", plain), func(b *testing.B) {
			r := newRaw(b, plain)
			b.ReportAllocs()
			b.ResetTimer()
			r.fill(b, b.N)
			rate(b)
		})
	}
	b.Run("ours", func(b *testing.B) {
		br, q := ours(b)
		b.ReportAllocs()
		b.ResetTimer()
		fill(b, br, q, b.N)
		rate(b)
	})
}

func BenchmarkPublish(b *testing.B) {
	for _, c := range []int{1, 256} {
		b.Run(fmt.Sprintf("%d/raw", c), func(b *testing.B) {
			r := newRaw(b, false)
			body := make([]byte, benchBody)
			b.ReportAllocs()
			b.ResetTimer()
			spread(b, c, func(i int) error {
				_, err := r.js.PublishMsg(context.Background(), r.msg(i, body))
				return err
			})
			rate(b)
		})
		b.Run(fmt.Sprintf("%d/ours", c), func(b *testing.B) {
			br, q := ours(b)
			body := make([]byte, benchBody)
			b.ReportAllocs()
			b.ResetTimer()
			spread(b, c, func(i int) error { return br.Publish(context.Background(), q, task(i, body)) })
			rate(b)
		})
	}
}

// spread runs fn b.N times in c goroutines.
func spread(b *testing.B, c int, fn func(i int) error) {
	work := make(chan int, c)
	var wg sync.WaitGroup
	for range c {
		wg.Go(func() {
			for i := range work {
				if err := fn(i); err != nil {
					b.Error(err)
				}
			}
		})
	}
	for i := range b.N {
		work <- i
	}
	close(work)
	wg.Wait()
}

func BenchmarkDrain(b *testing.B) {
	b.Run("raw", func(b *testing.B) {
		r := newRaw(b, false)
		r.fill(b, b.N)
		c, err := r.js.CreateConsumer(b.Context(), r.stream, jetstream.ConsumerConfig{
			Durable: "w", FilterSubject: r.prefix + "*", AckPolicy: jetstream.AckExplicitPolicy, AckWait: 30 * time.Second, MaxAckPending: -1,
		})
		if err != nil {
			b.Fatal(err)
		}
		b.ReportAllocs()
		b.ResetTimer()
		it, err := c.Messages(jetstream.PullMaxMessages(benchPrefetch))
		if err != nil {
			b.Fatal(err)
		}
		defer it.Stop()
		for range b.N {
			m, err := it.Next()
			if err != nil {
				b.Fatal(err)
			}
			if err := m.Ack(); err != nil {
				b.Fatal(err)
			}
		}
		rate(b)
	})
	b.Run("ours", func(b *testing.B) {
		br, q := ours(b)
		fill(b, br, q, b.N)
		ctx := context.Background()
		b.ReportAllocs()
		b.ResetTimer()
		s, err := br.Subscribe(ctx, q, broker.SubscribeOptions{Prefetch: benchPrefetch})
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
		rate(b)
	})
}

func BenchmarkRoundTrip(b *testing.B) {
	b.Run("raw", func(b *testing.B) {
		r := newRaw(b, false)
		c, err := r.js.CreateConsumer(b.Context(), r.stream, jetstream.ConsumerConfig{
			Durable: "w", FilterSubject: r.prefix + "*", AckPolicy: jetstream.AckExplicitPolicy, AckWait: 30 * time.Second, MaxAckPending: -1,
		})
		if err != nil {
			b.Fatal(err)
		}
		it, err := c.Messages(jetstream.PullMaxMessages(benchPrefetch))
		if err != nil {
			b.Fatal(err)
		}
		defer it.Stop()
		body := make([]byte, benchBody)
		b.ResetTimer()
		for i := range b.N {
			if _, err := r.js.PublishMsg(context.Background(), r.msg(i, body)); err != nil {
				b.Fatal(err)
			}
			m, err := it.Next()
			if err != nil {
				b.Fatal(err)
			}
			if err := m.Ack(); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("ours", func(b *testing.B) {
		br, q := ours(b)
		ctx := context.Background()
		s, err := br.Subscribe(ctx, q, broker.SubscribeOptions{Prefetch: benchPrefetch})
		if err != nil {
			b.Fatal(err)
		}
		body := make([]byte, benchBody)
		b.ResetTimer()
		for i := range b.N {
			if err := br.Publish(ctx, q, task(i, body)); err != nil {
				b.Fatal(err)
			}
			d, err := s.Receive(ctx)
			if err != nil {
				b.Fatal(err)
			}
			if err := d.Ack(ctx); err != nil {
				b.Fatal(err)
			}
		}
	})
}

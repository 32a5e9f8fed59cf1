package natsbroker_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/broker/natsbroker"
	"github.com/swarmiji/swarmiji/connect/natsconnect"
	"github.com/swarmiji/swarmiji/internal/testserver"
)

// The benchmarks are pairs, ours and the raw client's with the same stream settings, subjects,
// Nats-Msg-Id, expected sequence and kind of acknowledgement. Compare the two of a pair within one
// run: go test -run=- -bench=. -benchtime=100000x -count=3.

const (
	benchBody     = 100
	benchPrefetch = 256
)

func benchID(i int) string { return fmt.Sprintf("0190a5b0-0000-7000-8000-%012d", i) }

// raw is a stream like the adapter's, used with the plain client.
type raw struct {
	js     jetstream.JetStream
	stream string
	prefix string
	plain  bool // without the headers that the adapter adds
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
	br := open(b, natsbroker.Config{Connect: natsconnect.Config{URLs: []string{testserver.RequireNATS(b).URL()}}, Namespace: testserver.Namespace()})
	b.Cleanup(func() { _ = br.Close(context.Background()) })
	if err := br.Declare(b.Context(), broker.Queue{Name: "q"}); err != nil {
		b.Fatal(err)
	}
	return br, "q"
}

func numbered(i int, body []byte) *broker.Message {
	return &broker.Message{ID: benchID(i), ContentType: "application/x-bench", Body: body, Priority: 100}
}

func fill(b *testing.B, br *natsbroker.Broker, q string, n int) {
	body := make([]byte, benchBody)
	ms := make([]broker.Outgoing, 0, 1000)
	for done := 0; done < n; done += len(ms) {
		ms = ms[:0]
		for i := range min(1000, n-done) {
			ms = append(ms, broker.Outgoing{Queue: q, Message: numbered(done+i, body)})
		}
		if err := br.PublishBatch(context.Background(), ms); err != nil {
			b.Fatal(err)
		}
	}
}

// start begins a measurement. The function that it returns reports the messages per second and the
// processor time of client and server. Other programs on the machine affect the latter less.
func start(b *testing.B) (report func()) {
	b.Helper()
	pid := testserver.RequireNATS(b).PID()
	b.ReportAllocs()
	b.ResetTimer()
	client, server := processorTime(b, os.Getpid()), processorTime(b, pid)
	return func() {
		b.Helper()
		b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "msg/s")
		b.ReportMetric(float64((processorTime(b, os.Getpid())-client).Microseconds())/float64(b.N), "client-us/op")
		b.ReportMetric(float64((processorTime(b, pid)-server).Microseconds())/float64(b.N), "server-us/op")
	}
}

// processorTime returns the processor time of a process, 0 if the system does not report it.
func processorTime(b *testing.B, pid int) time.Duration {
	b.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	const user, system, perSecond = 11, 12, 100
	ticks := 0
	for _, i := range []int{user, system} {
		n, err := strconv.Atoi(fields[i])
		if err != nil {
			b.Fatal(err)
		}
		ticks += n
	}
	return time.Duration(ticks) * time.Second / perSecond
}

func BenchmarkBatch1000(b *testing.B) {
	for _, plain := range []bool{true, false} {
		b.Run(fmt.Sprintf("raw/plain=%v", plain), func(b *testing.B) {
			r := newRaw(b, plain)
			defer start(b)()
			r.fill(b, b.N)
		})
	}
	b.Run("ours", func(b *testing.B) {
		br, q := ours(b)
		defer start(b)()
		fill(b, br, q, b.N)
	})
}

func BenchmarkPublish(b *testing.B) {
	for _, c := range []int{1, 256} {
		b.Run(fmt.Sprintf("%d/raw", c), func(b *testing.B) {
			r := newRaw(b, false)
			body := make([]byte, benchBody)
			defer start(b)()
			spread(b, c, func(i int) error {
				_, err := r.js.PublishMsg(context.Background(), r.msg(i, body))
				return err
			})
		})
		b.Run(fmt.Sprintf("%d/ours", c), func(b *testing.B) {
			br, q := ours(b)
			body := make([]byte, benchBody)
			defer start(b)()
			spread(b, c, func(i int) error { return br.Publish(context.Background(), q, numbered(i, body)) })
		})
	}
}

// spread calls fn b.N times in c goroutines.
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
		defer start(b)()
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
	})
	b.Run("ours", func(b *testing.B) {
		br, q := ours(b)
		fill(b, br, q, b.N)
		ctx := context.Background()
		defer start(b)()
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
		defer start(b)()
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
		defer start(b)()
		for i := range b.N {
			if err := br.Publish(ctx, q, numbered(i, body)); err != nil {
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

// BenchmarkDue publishes 10,000 messages for the same time, and reports the lateness of the last
// and of the middle one.
func BenchmarkDue(b *testing.B) {
	const n = 10_000
	for range b.N {
		br, q := ours(b)
		ctx := context.Background()
		s, err := br.Subscribe(ctx, q, broker.SubscribeOptions{Prefetch: benchPrefetch})
		if err != nil {
			b.Fatal(err)
		}
		at := time.Now().Add(4 * time.Second)
		ms := make([]broker.Outgoing, n)
		for i := range ms {
			ms[i] = broker.Outgoing{Queue: q, Message: numbered(i, make([]byte, benchBody)), At: at}
		}
		if err := br.PublishBatch(ctx, ms); err != nil {
			b.Fatal(err)
		}
		if time.Now().After(at) {
			b.Fatal("the machine is too slow for this")
		}
		late := make([]time.Duration, n)
		for i := range late {
			d, err := s.Receive(ctx)
			if err != nil {
				b.Fatal(err)
			}
			late[i] = time.Since(at)
			if err := d.Ack(ctx); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(late[0].Milliseconds()), "ms-first")
		b.ReportMetric(float64(late[n/2].Milliseconds()), "ms-middle")
		b.ReportMetric(float64(late[n-1].Milliseconds()), "ms-last")
	}
}

// BenchmarkLate publishes messages for different times and reports their lateness.
func BenchmarkLate(b *testing.B) {
	br, q := ours(b)
	ctx := context.Background()
	s, err := br.Subscribe(ctx, q, broker.SubscribeOptions{Prefetch: benchPrefetch})
	if err != nil {
		b.Fatal(err)
	}
	at := make(map[string]time.Time)
	for i := range b.N {
		m := numbered(i, nil)
		at[m.ID] = time.Now().Add(time.Duration(i%1500) * time.Millisecond)
		if err := br.PublishAt(ctx, q, m, at[m.ID]); err != nil {
			b.Fatal(err)
		}
	}
	late := make([]time.Duration, b.N)
	for i := range late {
		d, err := s.Receive(ctx)
		if err != nil {
			b.Fatal(err)
		}
		late[i] = time.Since(at[d.Message().ID])
		if late[i] < 0 {
			b.Errorf("%s came %v early", d.Message().ID, -late[i])
		}
		if err := d.Ack(ctx); err != nil {
			b.Fatal(err)
		}
	}
	slices.Sort(late)
	b.ReportMetric(float64(late[len(late)/2].Microseconds())/1000, "ms-p50")
	b.ReportMetric(float64(late[len(late)-1].Microseconds())/1000, "ms-max")
}

// BenchmarkIdle reports the processor use of an idle consumer, in percent.
func BenchmarkIdle(b *testing.B) {
	br, q := ours(b)
	for range 4 {
		if _, err := br.Subscribe(context.Background(), q, broker.SubscribeOptions{Prefetch: 8}); err != nil {
			b.Fatal(err)
		}
	}
	for range b.N {
		const wait = 10 * time.Second
		before := processorTime(b, os.Getpid())
		<-time.After(wait)
		b.ReportMetric(100*float64(processorTime(b, os.Getpid())-before)/float64(wait), "%cpu")
	}
}

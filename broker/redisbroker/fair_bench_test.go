package redisbroker_test

import (
	"fmt"
	"regexp"
	"strconv"
	"testing"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/broker/redisbroker"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/internal/testwait"
)

// BenchmarkTurns publishes messages in batches and consumes them with prefetch 256. One operation
// is one message. server-us is the server's processor time for it. Compare with plain, a queue
// without turns: -benchtime 100000x. bounds has a limit for each key that is not reached. full has
// a limit of one, which is always reached.
func BenchmarkTurns(b *testing.B) {
	for _, kind := range []struct {
		name string
		keys func(n int) int
	}{
		{"plain", func(int) int { return 0 }},
		{"one_key", func(int) int { return 1 }},
		{"ten_keys", func(int) int { return 10 }},
		{"ten_messages_a_key", func(n int) int { return n/10 + 1 }},
		{"one_message_a_key", func(n int) int { return n }},
	} {
		b.Run(kind.name, func(b *testing.B) { benchmarkTurns(b, kind.keys(b.N), 0) })
		if kind.name != "plain" {
			b.Run(kind.name+"/bounds", func(b *testing.B) { benchmarkTurns(b, kind.keys(b.N), 1000) })
		}
		if kind.name == "ten_messages_a_key" {
			b.Run(kind.name+"/full", func(b *testing.B) { benchmarkTurns(b, kind.keys(b.N), 1) })
		}
	}
}

func benchmarkTurns(b *testing.B, keys, most int) {
	b.Helper()
	srv := testserver.RequireRedis(b)
	br := connect(b, redisbroker.Config{Namespace: testserver.Namespace()})
	if err := br.Declare(testwait.Long(b), broker.Queue{Name: "q", Fair: keys > 0}); err != nil {
		b.Fatal(err)
	}
	var ms []broker.Outgoing
	empty := serverNumber(b, srv, "memory", `used_memory:([0-9]+)`)
	before := serverTime(b, srv)
	b.ResetTimer()
	for i := range b.N {
		m := &broker.Message{ID: fmt.Sprintf("0198c1d2e3f4-%012d", i), ContentType: "application/x-swarmiji", Priority: 100, Body: make([]byte, 250)}
		m.Key = "customer-" + strconv.Itoa(i%max(keys, 1))
		if ms = append(ms, broker.Outgoing{Queue: "q", Message: m}); len(ms) < 5000 && i < b.N-1 {
			continue
		}
		if err := br.PublishBatch(testwait.Long(b), ms); err != nil {
			b.Fatal(err)
		}
		ms = ms[:0]
	}
	middle := serverTime(b, srv)
	memory := serverNumber(b, srv, "memory", `used_memory:([0-9]+)`)
	s := subscribeBounds(b, br, "q", 256, broker.Bounds{Key: broker.Bound{Max: most}})
	for range b.N {
		ack(b, receive(b, s))
	}
	testwait.Until(b, "that nothing is held", func() bool { return stats(b, br, "q") == broker.Stats{} })
	b.StopTimer()
	after := serverTime(b, srv)
	b.ReportMetric((memory-empty)/float64(b.N), "server-B")
	b.ReportMetric((middle-before)*1e6/float64(b.N), "enqueue-us")
	b.ReportMetric((after-middle)*1e6/float64(b.N), "drain-us")
	b.ReportMetric((after-before)*1e6/float64(b.N), "server-us")
}

// serverTime returns the processor time of the server so far, in seconds.
func serverTime(t testing.TB, srv *testserver.Redis) float64 {
	t.Helper()
	return serverNumber(t, srv, "cpu", `used_cpu_(?:user|sys):([0-9.]+)`)
}

// serverNumber returns the sum of the numbers in a section of the server's INFO that match a
// pattern.
func serverNumber(t testing.TB, srv *testserver.Redis, section, pattern string) float64 {
	t.Helper()
	total := 0.0
	text, _ := do(t, srv, "INFO", section).(string)
	for _, part := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
		n, err := strconv.ParseFloat(part[1], 64)
		if err != nil {
			t.Fatal(err)
		}
		total += n
	}
	return total
}

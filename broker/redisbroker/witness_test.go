package redisbroker_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/broker/redisbroker"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/internal/testwait"
)

func start(id, nonce string) broker.Start {
	return broker.Start{ID: id, Nonce: nonce, Node: "node", At: time.Now()}
}

func noteStart(t testing.TB, b *redisbroker.Broker, queue string, s broker.Start) []broker.Start {
	t.Helper()
	earlier, err := b.NoteStart(testwait.Long(t), queue, s)
	if err != nil {
		t.Fatalf("NoteStart: %v", err)
	}
	return earlier
}

func nodeState(t testing.TB, b *redisbroker.Broker) broker.NodeState {
	t.Helper()
	state, err := b.NodeState(testwait.Long(t), "node")
	if err != nil {
		t.Fatalf("NodeState: %v", err)
	}
	return state
}

// TestNodeStaysPresent shows that a node is present for longer than its key's expiry. Right after
// its Broker was cut off it is absent, although its key exists.
func TestNodeStaysPresent(t *testing.T) {
	t.Parallel()
	const ttl = 10 * time.Second
	srv := testserver.RequireRedis(t)
	ns := testserver.Namespace()
	a, l := overLine(t, redisbroker.Config{Namespace: ns}, srv)
	b := connect(t, redisbroker.Config{Namespace: ns})
	q := declared(t, a, "q")
	noteStart(t, a, q, start("m", "1"))
	begun := time.Now()
	testwait.Until(t, "that several signs of life are over", func() bool {
		if state := nodeState(t, b); state != broker.NodePresent {
			t.Fatalf("after %v the state is %d", time.Since(begun), state)
		}
		return time.Since(begun) > ttl+ttl/5
	})
	key := "swj:{" + ns + ".}:node"
	do(t, srv, "DEL", key) // as after a restore of older data
	testwait.Until(t, "that the node is present again", func() bool { return nodeState(t, b) == broker.NodePresent })
	l.set(true)
	if state := nodeState(t, b); state != broker.NodeAbsent {
		t.Errorf("the state of a node that was just cut off is %d", state)
	}
	if do(t, srv, "EXISTS", key) != int64(1) {
		t.Error("its key has gone already")
	}
	l.set(false)
	testwait.Until(t, "that the node is present again", func() bool { return nodeState(t, b) == broker.NodePresent })
	if err := a.Leave(testwait.Long(t), "node"); err != nil {
		t.Fatalf("Leave: %v", err)
	}
	noteStart(t, a, q, start("m", "2"))
	if state := nodeState(t, b); state != broker.NodeLeft {
		t.Errorf("a node that has left is back: %d", state)
	}
	for _, key := range []string{key, "swj:{" + ns + "." + q + "}:e:m"} {
		if left := do(t, srv, "TTL", key).(int64); left < 86_000 || left > 86_400 {
			t.Errorf("%s is kept for %d s, want 24 h", key, left)
		}
	}
}

// TestNotesOutOfMemory shows that a server whose memory is full accepts notes, verdicts and signs
// of life, because consumers must continue for memory to become free.
func TestNotesOutOfMemory(t *testing.T) {
	t.Parallel()
	srv := testserver.OwnRedis(t, testserver.RedisConfig{Conf: "maxmemory 6mb\nmaxmemory-policy noeviction"})
	b := connect(t, redisbroker.Config{Redis: options(srv)})
	q := declared(t, b, "q")
	for {
		m := message("big")
		m.ID = fmt.Sprint(time.Now().UnixNano())
		m.Body = bytes.Repeat([]byte("b"), 100_000)
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		err := b.Publish(ctx, q, m)
		cancel()
		if errors.Is(err, broker.ErrBlocked) {
			break
		}
		if err != nil {
			t.Fatalf("Publish: %v", err)
		}
	}
	s := start("m", "1")
	noteStart(t, b, q, s)
	s.Verdict = broker.StartDied
	if err := b.JudgeStart(testwait.Long(t), q, s); err != nil {
		t.Errorf("JudgeStart: %v", err)
	}
	if got := noteStart(t, b, q, start("m", "2")); len(got) != 1 || got[0].Verdict != broker.StartDied {
		t.Errorf("the earlier notes are %+v", got)
	}
	begun := time.Now()
	testwait.Until(t, "that several signs of life are over", func() bool {
		if state := nodeState(t, b); state != broker.NodePresent {
			t.Fatalf("after %v the state is %d", time.Since(begun), state)
		}
		return time.Since(begun) > 3*time.Second
	})
	if err := b.Leave(testwait.Long(t), "node"); err != nil {
		t.Errorf("Leave: %v", err)
	}
}

// BenchmarkNoteStart measures 1,000 notes one after another, and 1,000 at once.
func BenchmarkNoteStart(b *testing.B) {
	srv := testserver.OwnRedis(b, testserver.RedisConfig{})
	r := connect(b, redisbroker.Config{Redis: options(srv)})
	q := declared(b, connect(b, redisbroker.Config{Redis: options(srv)}), "q")
	const n = 1000
	p50 := func(took []time.Duration) float64 {
		slices.Sort(took)
		return float64(took[len(took)/2].Microseconds())
	}
	round := 0
	for b.Loop() {
		round++
		took := make([]time.Duration, n)
		for i := range took {
			begun := time.Now()
			noteStart(b, r, q, start(fmt.Sprintf("one-%d-%d", round, i), "nonce"))
			took[i] = time.Since(begun)
		}
		b.ReportMetric(p50(took), "p50-µs")
		var wg sync.WaitGroup
		begun := time.Now()
		for i := range took {
			wg.Go(func() {
				begun := time.Now()
				if _, err := r.NoteStart(testwait.Long(b), q, start(fmt.Sprintf("at-once-%d-%d", round, i), "nonce")); err != nil {
					b.Error(err)
				}
				took[i] = time.Since(begun)
			})
		}
		wg.Wait()
		b.ReportMetric(float64(time.Since(begun).Milliseconds()), "all-at-once-ms")
		b.ReportMetric(p50(took), "at-once-p50-µs")
	}
}

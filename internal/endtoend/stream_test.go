package endtoend_test

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/internal/wire"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/serializer"
	"github.com/swarmiji/swarmiji/task"
)

// TestSoakStreamIsFlat shows that memory does not grow with the number of members of a group. The
// members are given one by one, and both producer and consumer are measured. The group's callback
// runs once and reads all results in order. With SWARMIJI_SOAK the group has 100,000 members.
func TestSoakStreamIsFlat(t *testing.T) {
	const (
		samples = 5
		ahead   = 1_000   // members that may be queued or in progress
		growth  = 6 << 20 // bytes, from the first sample to the last; each member's message has some 300
	)
	n := 10_000
	if os.Getenv("SWARMIJI_SOAK") != "" {
		n = 100_000
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	memory := inMemory()
	pb, cb, results := memory.broker(t), memory.broker(t), memory.results(t)
	g := newTally(t, results.(resultstore.Gatherer))
	p, err := producer.New(producer.Config{Broker: pb, Results: results, Gatherer: g, Logger: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	c, err := consumer.New(consumer.Config{Broker: cb, Results: results, Gatherer: g, Logger: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	member := task.New[int, int]("member", task.WithIgnoreResult(true))
	total := task.New[task.Members[int], int]("total")
	callbacks := 0
	for _, err := range []error{
		member.Handle(c, func(_ context.Context, i int) (int, error) { return i + 1, nil }),
		total.Handle(c, func(ctx context.Context, m task.Members[int]) (int, error) {
			callbacks++
			seen := 0
			for s, err := range m.All(ctx) {
				if err != nil {
					return 0, err
				}
				if seen++; s.Value != seen || s.Failure != nil {
					return 0, fmt.Errorf("member %d of the list is %+v", seen-1, s)
				}
			}
			return seen, nil
		}),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan error, 1)
	go func() { ended <- c.Run(running) }()

	var heaps []int64
	inputs := func(yield func(int) bool) {
		for i := range n {
			g.await(ctx, i-ahead)
			if i%(n/samples) == n/samples-1 {
				heaps = append(heaps, heap())
			}
			if !yield(i) {
				return
			}
		}
	}
	run, err := task.Stream(ctx, p, inputs, member, total)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := run.Get(ctx); err != nil || got != n || callbacks != 1 {
		t.Errorf("the callback, run %d times, read %d members, %v; want %d", callbacks, got, err, n)
	}
	t.Logf("the heap with each fifth of %d members: %d", n, heaps)
	if got := heaps[samples-1] - heaps[0]; got > growth {
		t.Errorf("the heap grew by %d bytes while there came %d more members", got, n-n/samples)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	for _, part := range []closer{p, pb, cb, results} {
		if err := part.Close(context.WithoutCancel(ctx)); err != nil {
			t.Error(err)
		}
	}
}

// heap returns the size of the live heap in bytes, after a garbage collection.
func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// tally is a Gatherer that stores one bit for each member. A real store is in another process, so
// its memory must not be measured.
type tally struct {
	resultstore.Gatherer
	t     *testing.T
	codec *wire.Codec

	mu      sync.Mutex
	here    []byte
	done    int
	size    int
	decider int
	more    chan struct{} // closed and replaced with every hundredth member
}

func newTally(t *testing.T, g resultstore.Gatherer) *tally {
	codec, err := wire.New(serializer.Wire{})
	if err != nil {
		t.Fatal(err)
	}
	return &tally{Gatherer: g, t: t, codec: codec, here: make([]byte, 100_000/8+1), decider: -1, more: make(chan struct{})}
}

func (g *tally) Arrive(_ context.Context, a resultstore.Arrival) (resultstore.Gathered, error) {
	var v int
	if err := g.codec.Unmarshal(a.Record.ContentType, a.Record.Result, &v); err != nil || v != a.Index+1 || a.Record.State != task.StateSucceeded {
		g.t.Errorf("member %d arrived with %d, %v, %s", a.Index, v, err, a.Record.State)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.size = max(g.size, a.Size)
	if bit := byte(1) << (a.Index % 8); g.here[a.Index/8]&bit == 0 {
		g.here[a.Index/8] |= bit
		if g.done++; g.done%100 == 0 {
			close(g.more)
			g.more = make(chan struct{})
		}
	}
	if g.decider < 0 && g.done == g.size {
		g.decider = a.Index
	}
	return resultstore.Gathered{Size: g.size, Done: g.done, Decider: g.decider}, nil
}

func (g *tally) Members(_ context.Context, _ task.ID, from, limit int) ([]resultstore.Record, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	var page []resultstore.Record
	for i := from; i < min(from+limit, g.size) && g.here[i/8]&(1<<(i%8)) != 0; i++ {
		data, ct, err := g.codec.Marshal("", i+1)
		if err != nil {
			return nil, err
		}
		page = append(page, resultstore.Record{ID: "m", State: task.StateSucceeded, ContentType: ct, Result: data})
	}
	return page, nil
}

// await waits until n members have arrived or ctx ends.
func (g *tally) await(ctx context.Context, n int) {
	for {
		g.mu.Lock()
		done, more := g.done, g.more
		g.mu.Unlock()
		if done >= n {
			return
		}
		select {
		case <-more:
		case <-ctx.Done():
			return
		}
	}
}

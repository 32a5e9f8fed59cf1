package eventstest

import (
	"context"
	"runtime"
	"sync"
	"time"

	"github.com/swarmiji/swarmiji/capability"
	"github.com/swarmiji/swarmiji/events"
)

// flowCases returns the cases of slow listeners and many events.
func flowCases() []testCase {
	return []testCase{
		{
			Area: "flow", Name: "an event is not held for long",
			Explain: "Events are sent in batches, and an event waits at most 50 ms for others.",
			Run: func(w *world) {
				s, b := w.all(w.Open()), w.Open()
				w.flows(b, s, "a first event, which may have to connect")
				ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond+w.Slack)
				defer cancel()
				e := w.send(b, 1)[0]
				got, err := s.Receive(ctx)
				if err != nil || got.TaskID != e.TaskID {
					w.Errorf("a single event was not there 50 ms (and the slack) after Publish: %s, %v", show(got), err)
				}
			},
		},
		{
			Area: "flow", Name: "a stuck listener neither blocks nor grows",
			Explain: "A listener that does not read delays no other: Publish returns, other listeners receive all events, memory is limited, and the oldest events are dropped and counted.",
			Run: func(w *world) {
				b := w.Open()
				stuck, quick := w.all(w.Open()), w.all(w.Open())
				total := 4 * w.buffer
				chunk := max(w.buffer/8, 1)
				var last events.Event
				for sent := 0; sent < total; sent += chunk {
					es := w.send(b, chunk)
					w.wantAll(quick, es, "the quick listener")
					last = es[len(es)-1]
				}
				c, ok := capability.As[events.DropCounter](stuck)
				if !ok {
					w.Fatalf("%T counts no dropped events", stuck)
				}
				got := 0
				for {
					got++
					if w.receive(stuck).TaskID == last.TaskID {
						break
					}
				}
				if got > 2*w.buffer {
					w.Errorf("a listener that did not read held %d events, the buffer is %d", got, w.buffer)
				}
				if got < w.buffer/2 {
					w.Errorf("a listener that did not read held only %d events, the buffer is %d", got, w.buffer)
				}
				if d := int(c.Dropped()); d == 0 || d > total-got {
					w.Errorf("Dropped is %d; %d events were sent and %d received", d, total, got)
				}
			},
		},
		{
			Area: "flow", Name: "Publish is quick",
			Explain: "Publish returns at once, without waiting for I/O, because every task calls it: each of 10,000 calls from several goroutines with a listener takes less than a few round trips over the loopback interface.",
			Run: func(w *world) {
				b := w.Open()
				w.all(w.Open())
				const n = 10_000
				w.quick(w.hammer(b, n), n)
			},
		},
		{
			Area: "flow", Name: "memory is bounded",
			Explain: "Events that cannot be sent are dropped, so that an endless burst does not increase the memory of the process.",
			Run: func(w *world) {
				b := w.Open()
				w.all(w.Open())
				w.hammer(b, 30_000) // fills its buffers
				before := heap()
				w.hammer(b, many)
				w.grown(before, "over many events that nobody reads")
			},
		},
	}
}

// many events need 25 MiB of memory if they are kept. most is the largest growth of the heap that a
// bus may cause with all its buffers. With the race detector each event takes ten times as long as
// without.
const (
	many = 100_000
	most = 16 << 20
)

// grown fails the case if the heap is now larger than before, in bytes, by more than most. The
// argument when completes the failure text.
func (w *world) grown(before uint64, when string) {
	w.Helper()
	after := heap()
	if after > before+most {
		w.Errorf("the heap grew from %d to %d MiB %s", before>>20, after>>20, when)
	}
}

// hammer publishes about n events on b from four goroutines, as fast as possible, and returns how
// long that took. It fails the case if Publish returns an error.
func (w *world) hammer(b events.EventBus, n int) time.Duration {
	w.Helper()
	e := full(events.TaskSent)
	e.Fields = nil
	const goroutines = 4
	var wg sync.WaitGroup
	began := time.Now()
	for range goroutines {
		wg.Go(func() {
			for range n / goroutines {
				if err := b.Publish(context.Background(), e); err != nil {
					w.Errorf("Publish: %v", w.Clean(err))
					return
				}
			}
		})
	}
	wg.Wait()
	return time.Since(began)
}

// heap collects the garbage and returns the bytes that remain allocated.
func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

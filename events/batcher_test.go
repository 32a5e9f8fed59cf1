package events_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/task"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeConn stands for a connection: it records the messages that are sent through it.
type fakeConn struct {
	mu     sync.Mutex
	sizes  []int // number of events of each message
	bytes  []int
	ids    []task.ID
	at     []time.Time
	err    error         // returned by send
	gate   chan struct{} // send waits for it or for its ctx; nil: send does not wait
	inside int           // running sends
	most   int
}

func (w *fakeConn) send(ctx context.Context, message []byte, n int) error {
	w.mu.Lock()
	w.inside++
	w.most = max(w.most, w.inside)
	gate := w.gate
	w.mu.Unlock()
	var err error
	if gate != nil {
		select {
		case <-gate:
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.inside--
	if err == nil {
		err = w.err
	}
	if err != nil {
		return err
	}
	es, err := events.Decode(message)
	if err != nil || len(es) != n {
		return fmt.Errorf("a message of %d events, said to be %d: %w", len(es), n, err)
	}
	w.sizes = append(w.sizes, n)
	w.bytes = append(w.bytes, len(message))
	w.at = append(w.at, time.Now())
	for _, e := range es {
		w.ids = append(w.ids, e.TaskID)
	}
	return nil
}

func (w *fakeConn) wantInOrder(t *testing.T, from, n int) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.ids) != n {
		t.Fatalf("%d events were sent, want %d", len(w.ids), n)
	}
	for i, id := range w.ids {
		if want := task.ID(fmt.Sprint(from + i)); id != want {
			t.Fatalf("event %d sent is %q, want %q", i, id, want)
		}
	}
}

func add(t *testing.T, b *events.Batcher, from, n int) {
	t.Helper()
	for i := range n {
		if err := b.Add(events.Event{Type: events.TaskStarted, TaskID: task.ID(fmt.Sprint(from + i))}); err != nil {
			t.Fatalf("Add: %v", err)
		}
	}
}

func shut(t *testing.T, b *events.Batcher) {
	t.Helper()
	if err := b.Close(t.Context()); err != nil {
		t.Errorf("Close: %v", err)
	}
}

func TestBatcherWaitsForOthersButNotLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &fakeConn{}
		b := events.NewBatcher(w.send, events.BatcherConfig{})
		began := time.Now()
		add(t, b, 0, 3)
		time.Sleep(events.DefaultLinger - time.Millisecond)
		synctest.Wait()
		if len(w.sizes) != 0 {
			t.Error("a small batch was sent before the others had their time to come")
		}
		add(t, b, 3, 4)
		time.Sleep(time.Millisecond)
		synctest.Wait()
		w.wantInOrder(t, 0, 7)
		if len(w.sizes) != 1 || w.at[0].Sub(began) != events.DefaultLinger {
			t.Errorf("messages of %d events, the first after %v; want one after %v", w.sizes, w.at[0].Sub(began), events.DefaultLinger)
		}
		time.Sleep(time.Hour) // the Batcher is idle for an hour, then sends again
		began = time.Now()
		add(t, b, 7, 1)
		time.Sleep(events.DefaultLinger)
		synctest.Wait()
		w.wantInOrder(t, 0, 8)
		if got := w.at[1].Sub(began); got != events.DefaultLinger {
			t.Errorf("after a pause an event was sent after %v, want %v", got, events.DefaultLinger)
		}
		shut(t, b)
	})
}

func TestBatcherSendsFullBatchesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &fakeConn{}
		b := events.NewBatcher(w.send, events.BatcherConfig{})
		began := time.Now()
		add(t, b, 0, 350)
		synctest.Wait()
		w.wantInOrder(t, 0, 300)
		add(t, b, 350, 50)
		synctest.Wait()
		w.wantInOrder(t, 0, 400)
		for i := range w.at {
			if w.sizes[i] != events.MaxBatch || w.at[i] != began {
				t.Errorf("message %d has %d events after %v, want %d at once", i, w.sizes[i], w.at[i].Sub(began), events.MaxBatch)
			}
		}
		shut(t, b)
	})
}

func TestBatcherCountsTheWaitDuringASend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &fakeConn{gate: make(chan struct{})}
		b := events.NewBatcher(w.send, events.BatcherConfig{})
		add(t, b, 0, events.MaxBatch) // sent at once and blocked
		synctest.Wait()
		add(t, b, events.MaxBatch, 1)
		time.Sleep(time.Second)
		close(w.gate)
		synctest.Wait()
		w.wantInOrder(t, 0, events.MaxBatch+1) // without another 50 ms
		if w.most != 1 {
			t.Errorf("%d sends at a time: events would overtake each other", w.most)
		}
		shut(t, b)
	})
}

func TestBatcherKeepsMessagesSmall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit = 20_000
		w := &fakeConn{}
		b := events.NewBatcher(w.send, events.BatcherConfig{MaxBytes: limit})
		for i := range 100 {
			e := events.Event{Type: events.TaskFailed, TaskID: task.ID(fmt.Sprint(i)), Stack: strings.Repeat("s", 3000)}
			if i == 50 {
				// six bytes for each byte of the text
				e.Exception, e.Stack = strings.Repeat("\x00", 9000), strings.Repeat("\x00", 9000)
			}
			if err := b.Add(e); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		w.wantInOrder(t, 0, 100)
		large := 0
		for i, n := range w.bytes {
			if n <= limit {
				continue
			}
			if large++; w.sizes[i] != 1 {
				t.Errorf("a message of %d events has %d bytes, the limit is %d", w.sizes[i], n, limit)
			}
		}
		if large != 1 || len(w.sizes) > 20 {
			t.Errorf("messages of %d events, %d of them too large; want full ones, and only the large event alone", w.sizes, large)
		}
		shut(t, b)
	})
}

func TestBatcherDropsTheOldestAndNeverBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &fakeConn{gate: make(chan struct{})}
		b := events.NewBatcher(w.send, events.BatcherConfig{Capacity: 1000, SendTimeout: time.Hour})
		add(t, b, 0, events.MaxBatch)
		synctest.Wait() // these are being sent, and blocked
		add(t, b, 100, 5000)
		if b.Dropped() != 4000 {
			t.Errorf("Dropped is %d after 5000 events for 1000 places", b.Dropped())
		}
		close(w.gate)
		time.Sleep(time.Second)
		synctest.Wait()
		w.mu.Lock()
		if len(w.ids) != 1100 || w.ids[100] != "4100" || w.ids[1099] != "5099" {
			t.Errorf("%d events were sent, from the 101st on %q to %q; want the newest 1000, 4100 to 5099", len(w.ids), w.ids[100], w.ids[len(w.ids)-1])
		}
		w.mu.Unlock()
		shut(t, b)
	})
}

func TestBatcherGoesOnAfterFailedSends(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &fakeConn{err: events.ErrUnavailable}
		b := events.NewBatcher(w.send, events.BatcherConfig{})
		add(t, b, 0, 150)
		time.Sleep(time.Second)
		synctest.Wait()
		if b.Dropped() != 150 {
			t.Errorf("Dropped is %d after 150 events could not be sent", b.Dropped())
		}
		w.mu.Lock()
		w.err = nil
		w.mu.Unlock()
		add(t, b, 150, 10)
		time.Sleep(time.Second)
		synctest.Wait()
		w.wantInOrder(t, 150, 10)
		shut(t, b)
		if b.Dropped() != 150 {
			t.Errorf("Dropped is %d, want 150", b.Dropped())
		}
	})
}

func TestBatcherGivesUpAStuckSend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &fakeConn{gate: make(chan struct{})}
		b := events.NewBatcher(w.send, events.BatcherConfig{})
		add(t, b, 0, 1)
		time.Sleep(events.DefaultLinger + events.DefaultSendTimeout)
		synctest.Wait()
		if b.Dropped() != 1 {
			t.Errorf("Dropped is %d after a send that was stuck for longer than SendTimeout, want 1", b.Dropped())
		}
		close(w.gate)
		shut(t, b)
	})
}

func TestBatcherDropsWhatCannotBeEncoded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &fakeConn{}
		b := events.NewBatcher(w.send, events.BatcherConfig{})
		for _, e := range []events.Event{{}, {Type: "x", TaskID: "a b"}} {
			if err := b.Add(e); err != nil {
				t.Errorf("Add: %v", err)
			}
		}
		add(t, b, 0, 1)
		shut(t, b)
		w.wantInOrder(t, 0, 1)
		if b.Dropped() != 2 {
			t.Errorf("Dropped is %d, want the two that are no events", b.Dropped())
		}
	})
}

func TestBatcherCloseFlushes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &fakeConn{}
		b := events.NewBatcher(w.send, events.BatcherConfig{})
		began := time.Now()
		add(t, b, 0, 250)
		shut(t, b)
		w.wantInOrder(t, 0, 250)
		if took := time.Since(began); took != 0 {
			t.Errorf("Close waited %v for others to come", took)
		}
		shut(t, b)
		if err := b.Add(events.Event{Type: "x"}); !errors.Is(err, events.ErrClosed) {
			t.Errorf("Add after Close returned %v", err)
		}
		if !b.Closed() {
			t.Error("Closed is false after Close")
		}
	})
}

func TestBatcherCloseOfAnUnusedOne(t *testing.T) {
	b := events.NewBatcher((&fakeConn{}).send, events.BatcherConfig{})
	shut(t, b)
	shut(t, b)
}

func TestBatcherCloseEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &fakeConn{gate: make(chan struct{})}
		b := events.NewBatcher(w.send, events.BatcherConfig{SendTimeout: time.Hour})
		add(t, b, 0, 250)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		if err := b.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Close returned %v, want its ctx's error", err)
		}
		if took := time.Since(began); took != time.Second {
			t.Errorf("Close returned after %v, want the second of its ctx", took)
		}
		if b.Dropped() != 250 {
			t.Errorf("Dropped is %d after Close gave up 250 events", b.Dropped())
		}
		shut(t, b)
	})
}

func TestBatcherCloseDoesNotTryEachMessageOfADeadServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &fakeConn{gate: make(chan struct{})}
		b := events.NewBatcher(w.send, events.BatcherConfig{})
		add(t, b, 0, 5000)
		began := time.Now()
		shut(t, b)
		if took := time.Since(began); took > events.DefaultSendTimeout {
			t.Errorf("Close took %v, want at most one send's time", took)
		}
		if b.Dropped() != 5000 {
			t.Errorf("Dropped is %d, want all 5000", b.Dropped())
		}
	})
}

func TestBatcherOfManyGoroutines(t *testing.T) {
	w := &fakeConn{}
	b := events.NewBatcher(w.send, events.BatcherConfig{Capacity: 100_000})
	const goroutines, each = 8, 2000
	var wg sync.WaitGroup
	for g := range goroutines {
		wg.Go(func() {
			for i := range each {
				if err := b.Add(events.Event{Type: "x", TaskID: task.ID(fmt.Sprintf("%d-%05d", g, i))}); err != nil {
					t.Errorf("Add: %v", err)
				}
			}
		})
	}
	wg.Wait()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	if err := b.Close(ctx); err != nil {
		t.Fatal(err)
	}
	last := map[byte]task.ID{}
	for _, id := range w.ids {
		if id <= last[id[0]] {
			t.Fatalf("%q was sent after %q", id, last[id[0]])
		}
		last[id[0]] = id
	}
	if len(w.ids) != goroutines*each || b.Dropped() != 0 {
		t.Errorf("%d events were sent and %d dropped, want all %d", len(w.ids), b.Dropped(), goroutines*each)
	}
}

func TestAddDoesNotKeepTheCallersMap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got []events.Event
		b := events.NewBatcher(func(_ context.Context, m []byte, _ int) error {
			var err error
			got, err = events.Decode(m)
			return err
		}, events.BatcherConfig{})
		fields := map[string]any{"a": "before"}
		if err := b.Add(events.Event{Type: "x", Fields: fields}); err != nil {
			t.Fatal(err)
		}
		fields["a"] = "after"
		shut(t, b)
		if got[0].Fields["a"] != "before" {
			t.Errorf("the event changed with its publisher's map: %v", got[0].Fields)
		}
	})
}

func BenchmarkAdd(b *testing.B) {
	for _, name := range []string{"sending", "stuck"} {
		b.Run(name, func(b *testing.B) {
			w := events.NewBatcher(func(ctx context.Context, _ []byte, _ int) error {
				if name == "stuck" {
					<-ctx.Done()
				}
				return ctx.Err()
			}, events.BatcherConfig{})
			e := full(events.TaskSent)
			e.Fields = nil
			b.ReportAllocs()
			for b.Loop() {
				if err := w.Add(e); err != nil {
					b.Fatal(err)
				}
			}
			b.StopTimer()
			ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
			defer cancel()
			if err := w.Close(ctx); err != nil && !errors.Is(err, context.DeadlineExceeded) {
				b.Error(err)
			}
		})
	}
}

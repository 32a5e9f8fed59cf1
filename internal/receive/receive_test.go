package receive_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/swarmiji/swarmiji/internal/receive"
)

var errGone = errors.New("gone")

// queue is a subscription with one priority level.
type queue struct {
	mu   sync.Mutex
	held receive.Held[int]
	hide bool // held deliveries are returned only if now is true
	line *receive.Line[int]
}

func newQueue() *queue {
	q := &queue{}
	q.line = receive.NewLine(&q.mu, func(now bool) *int {
		if q.hide && !now {
			return nil
		}
		return q.held.Pop()
	})
	return q
}

func (q *queue) do(fn func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	fn()
}

func (q *queue) push(n int) {
	q.do(func() {
		q.held.Push(&n)
		q.line.Serve()
	})
}

func TestReceiveInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue()
		got := make([]int, 3)
		var wg sync.WaitGroup
		for i := range got {
			wg.Go(func() {
				n, err := q.line.Receive(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				got[i] = *n
			})
			synctest.Wait()
		}
		q.do(func() {
			if n := q.line.Len(); n != 3 {
				t.Errorf("%d wait, want 3", n)
			}
		})
		for n := range 4 {
			q.push(n + 1)
		}
		wg.Wait()
		if !slices.Equal(got, []int{1, 2, 3}) {
			t.Errorf("those who waited got %v, want 1, 2, 3: whoever waits longest is first", got)
		}
		if n, err := q.line.Receive(t.Context()); err != nil || *n != 4 {
			t.Errorf("then %v, %v, want the 4 that is held", n, err)
		}
	})
}

func TestReceiveEndsWithContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := q.line.Receive(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want ctx's error", err)
		}
		q.do(func() {
			if n := q.line.Len(); n != 0 {
				t.Errorf("%d wait after the end of ctx", n)
			}
			q.hide = true
		})
		q.push(1)
		if n, err := q.line.Receive(ctx); err != nil || *n != 1 {
			t.Errorf("got %v, %v; whoever cannot wait gets what is held, whatever may come", n, err)
		}
		ctx, cancel = context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		time.AfterFunc(time.Second/2, func() { q.push(2) })
		if n, err := q.line.Receive(ctx); err != nil || *n != 2 {
			t.Errorf("got %v, %v; whoever cannot wait any longer gets what is held", n, err)
		}
	})
}

func TestReceiveFailsAndCloses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue()
		time.AfterFunc(time.Second, func() { q.do(func() { q.line.Fail(errGone) }) })
		if _, err := q.line.Receive(t.Context()); !errors.Is(err, errGone) {
			t.Errorf("got %v, want the fault, while waiting", err)
		}
		if _, err := q.line.Receive(t.Context()); !errors.Is(err, errGone) {
			t.Errorf("got %v, want the fault, while it lasts", err)
		}
		q.push(1)
		if n, err := q.line.Receive(t.Context()); err != nil || *n != 1 {
			t.Errorf("got %v, %v, want what is held before the fault", n, err)
		}
		q.do(func() { q.line.Fail(nil) })
		time.AfterFunc(time.Second, func() {
			q.do(func() {
				if !q.line.Close(errGone) || q.line.Close(errGone) || !q.line.Closed() {
					t.Error("the first Close is one, the second is not")
				}
			})
		})
		if _, err := q.line.Receive(t.Context()); !errors.Is(err, errGone) {
			t.Errorf("got %v, want the end", err)
		}
	})
}

func TestHeldKeepsOrderAndMemory(t *testing.T) {
	var h receive.Held[int]
	next, want := 0, 0
	pop := func() {
		if d := h.Pop(); d == nil || *d != want {
			t.Fatalf("got %v, want %d", d, want)
		}
		want++
	}
	for range 1000 {
		for range 3 {
			n := next
			h.Push(&n)
			next++
		}
		pop()
		pop()
		if h.Len() != next-want || len(h.All()) != h.Len() || *h.All()[0] != want {
			t.Fatalf("%d are held, want %d from %d on", h.Len(), next-want, want)
		}
	}
	all := h.TakeAll()
	if len(all) != next-want || h.Len() != 0 || h.Pop() != nil {
		t.Errorf("took %d, want %d; %d are left", len(all), next-want, h.Len())
	}
	n := 1
	if got := testing.AllocsPerRun(100, func() { h.Push(&n); h.Pop() }); got != 0 {
		t.Errorf("a queue that is emptied again and again allocates %v times", got)
	}
}

func TestShare(t *testing.T) {
	for _, tt := range []struct {
		prefetch int
		want     [3]int
	}{{9, [3]int{3, 3, 3}}, {8, [3]int{3, 3, 2}}, {1, [3]int{1, 1, 1}}, {0, [3]int{}}, {-1, [3]int{-1, -1, -1}}} {
		for i, want := range tt.want {
			if got := receive.Share(tt.prefetch, i, 3); got != want {
				t.Errorf("Share(%d, %d, 3) = %d, want %d", tt.prefetch, i, got, want)
			}
		}
	}
}

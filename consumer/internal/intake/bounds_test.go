package intake

import (
	"log/slog"
	"testing"

	"github.com/swarmiji/swarmiji/broker"
)

// resized is a Tasks that ignores the prefetch.
type resized struct{ Tasks }

// Resized implements [Tasks].
func (resized) Resized(int) {}

// TestMaxBeforeOpen shows that a Max that is set before Open lowers the first prefetch.
func TestMaxBeforeOpen(t *testing.T) {
	q := NewQueue(t.Context(), &Config{
		Queue: broker.Queue{Name: "mail", Fair: true}, Follow: true, Tasks: resized{},
		Prefetch: func(workers int) int { return 4 * workers },
	}, 8)
	if err := q.SetBounds(broker.Bounds{Key: broker.Bound{Max: 3}}); err != nil {
		t.Fatalf("SetBounds: %v", err)
	}
	if q.Prefetch() != 8 {
		t.Errorf("the prefetch is %d, want 8", q.Prefetch())
	}
	if err := q.SetBounds(broker.Bounds{}); err != nil {
		t.Fatalf("SetBounds: %v", err)
	}
	if q.Prefetch() != 32 {
		t.Errorf("the prefetch without bounds is %d, want 32", q.Prefetch())
	}
}

// TestBoundsOfAPlainQueue shows that a stored bound of a queue that is not fair is logged once, and
// not used.
func TestBoundsOfAPlainQueue(t *testing.T) {
	logged := 0
	q := NewQueue(t.Context(), &Config{
		Queue: broker.Queue{Name: "mail"}, Follow: true, Tasks: resized{},
		Prefetch: func(workers int) int { return 4 * workers },
		Log:      func(slog.Level, string, ...slog.Attr) { logged++ },
	}, 8)
	before := q.Prefetch()
	for _, b := range []broker.Bounds{{}, {Key: broker.Bound{Max: 3}}, {Key: broker.Bound{Max: 3}}, {}} {
		if err := q.SetBounds(b); err != nil {
			t.Fatalf("SetBounds: %v", err)
		}
	}
	if logged != 1 || q.Prefetch() != before {
		t.Errorf("%d lines were logged and the prefetch is %d, want 1 and %d", logged, q.Prefetch(), before)
	}
}

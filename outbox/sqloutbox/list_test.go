package sqloutbox_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/swarmiji/swarmiji/internal/testwait"
	"github.com/swarmiji/swarmiji/outbox"
	"github.com/swarmiji/swarmiji/outbox/sqloutbox"
)

// TestWaiting shows that failing messages are listed, and that only these can be dropped while they
// wait. Then the later messages of the key are sent.
func TestWaiting(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, d *database) {
		ctx := testwait.Long(t)
		s := d.open(t)
		other := d.open(t, func(c *sqloutbox.Config) { c.Namespace = "other" })
		d.submit(t, s, numbered("a", "k", 2)...)
		d.submit(t, s, numbered("b", "", 1)...)
		d.submit(t, other, numbered("a", "k", 1)...)
		buckets := make([]int, outbox.Buckets)
		for i := range buckets {
			buckets[i] = i
		}
		rows, err := s.Read(ctx, buckets, false)
		must(t, err)
		must(t, s.Settle(ctx, outbox.Settlement{Failed: []outbox.Failure{{Ref: rows[0].Ref(), Reason: "no such queue", After: time.Hour}}}))

		a0 := outbox.WaitingMessage{ID: "a0", Queue: "work", OrderKey: "k", Failures: 1, Reason: "no such queue"}
		a1, b0 := outbox.WaitingMessage{ID: "a1", Queue: "work", OrderKey: "k"}, outbox.WaitingMessage{ID: "b0", Queue: "work"}
		has := func(failing bool, most int, want ...outbox.WaitingMessage) {
			t.Helper()
			got, err := s.Waiting(ctx, failing, most)
			must(t, err)
			if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(outbox.WaitingMessage{}, "At", "Next")); diff != "" {
				t.Errorf("failing %v, at most %d:\n%s", failing, most, diff)
			}
			for _, m := range got {
				if m.At.IsZero() || m.Next.IsZero() != (m.Failures == 0) || m.Failures > 0 && m.Next.Sub(m.At) < time.Hour {
					t.Errorf("%s was stored at %v and is tried again at %v", m.ID, m.At, m.Next)
				}
			}
		}
		has(false, 9, a0, a1, b0)
		has(false, 2, a0, a1)
		has(true, 9, a0)
		if n, err := s.Drop(ctx, "a1", "b0", "none"); n != 0 || err != nil {
			t.Errorf("drop of messages that do not fail: %d, %v", n, err)
		}
		if n, err := s.Drop(ctx, "a0", "a0"); n != 1 || err != nil {
			t.Errorf("drop: %d, %v", n, err)
		}
		has(true, 9)
		has(false, 9, a1, b0)
		if rows, err := s.Read(ctx, buckets, false); err != nil || len(rows) != 2 {
			t.Errorf("after the drop %d messages can be sent, %v; want 2", len(rows), err)
		}
		if left, err := other.Waiting(ctx, false, 9); err != nil || len(left) != 1 {
			t.Errorf("the other outbox has %v, %v", left, err)
		}
	})
}

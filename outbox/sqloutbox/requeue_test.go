package sqloutbox_test

import (
	"context"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/sqlconn"
	"github.com/swarmiji/swarmiji/internal/sqlconn/sqltest"
	"github.com/swarmiji/swarmiji/internal/testwait"
	"github.com/swarmiji/swarmiji/outbox"
	"github.com/swarmiji/swarmiji/outbox/sqloutbox"
)

// report returns a message with the id "report".
func report(queue, body string) broker.Outgoing {
	return broker.Outgoing{Queue: queue, Message: &broker.Message{ID: "report", Body: []byte(body)}}
}

// kill makes the only waiting message dead.
func kill(t *testing.T, s *sqloutbox.Store) {
	t.Helper()
	rows := waiting(t, s)
	if len(rows) != 1 {
		t.Fatalf("%d messages wait, want 1", len(rows))
	}
	must(t, s.Settle(testwait.Long(t), outbox.Settlement{Dead: []outbox.Failure{{Ref: rows[0].Ref(), Reason: "too large"}}}))
}

// TestRequeueTwice shows that Requeue loses no dead message whose id another message has. It puts
// back one at a time.
func TestRequeueTwice(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, d *database) {
		s, ctx := d.open(t), testwait.Long(t)
		for _, body := range []string{"first", "second"} {
			d.submit(t, s, report("work", body))
			kill(t, s)
		}
		d.submit(t, s, report("archive", "other queue"))
		kill(t, s)
		for i, want := range []struct {
			back, dead int
			bodies     []string
		}{
			{2, 1, []string{"first", "other queue"}},
			{0, 1, []string{"first", "other queue"}},
		} {
			n, err := s.Requeue(ctx, "report")
			must(t, err)
			dead, err := s.Dead(ctx, 10)
			must(t, err)
			rows := waiting(t, s)
			if n != want.back || len(dead) != want.dead || len(rows) != len(want.bodies) {
				t.Fatalf("call %d: %d put back, %d dead, %d wait; want %+v", i, n, len(dead), len(rows), want)
			}
			for j, r := range rows {
				if got := string(r.Message.Body); got != want.bodies[j] {
					t.Errorf("call %d: message %d is %q, want %q", i, j, got, want.bodies[j])
				}
			}
		}
		rows := waiting(t, s)
		must(t, s.Settle(ctx, outbox.Settlement{Sent: []outbox.Ref{rows[0].Ref(), rows[1].Ref()}}))
		if n, err := s.Requeue(ctx, "report"); n != 1 || err != nil {
			t.Errorf("after the first was sent: %d put back, %v; want 1", n, err)
		}
		if rows := waiting(t, s); len(rows) != 1 || string(rows[0].Message.Body) != "second" {
			t.Errorf("after the first was sent, %d wait; want the second", len(rows))
		}
	})
}

// TestRequeueRace shows that Requeue deletes no message that becomes dead meanwhile.
func TestRequeueRace(t *testing.T) {
	t.Parallel()
	d, ctx := postgres(t), testwait.Long(t)
	s := d.open(t)
	d.submit(t, s, report("reports", ""))
	kill(t, s)
	d.submit(t, s, report("archive", ""))
	rows := waiting(t, s)
	u := d.begin(t) // Requeue waits for it
	must(t, s.PublishTx(ctx, u.Tx, []broker.Outgoing{report("reports", "")}))
	done := make(chan int, 1)
	go func() {
		n, err := s.Requeue(ctx, "report")
		if err != nil {
			t.Error(err)
		}
		done <- n
	}()
	conn := sqltest.Conn(t, d.url)
	testwait.Until(t, "Requeue waits for the transaction", func() bool {
		var n int
		must(t, conn.View(ctx, func(ctx context.Context, tx *sqlconn.Tx) error {
			return tx.Row(ctx, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'").Scan(&n)
		}))
		return n > 0
	})
	must(t, s.Settle(ctx, outbox.Settlement{Dead: []outbox.Failure{{Ref: rows[0].Ref(), Reason: "too large"}}}))
	must(t, u.Rollback())
	select {
	case n := <-done:
		st, err := s.Stats(ctx)
		must(t, err)
		if n < 1 || st.Waiting != n || st.Waiting+st.Dead != 2 {
			t.Errorf("%d put back, %d wait, %d dead; want two in all", n, st.Waiting, st.Dead)
		}
	case <-time.After(time.Minute):
		t.Fatal("Requeue does not return")
	}
}

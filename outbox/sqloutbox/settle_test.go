package sqloutbox_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/internal/sqlconn/sqltest"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/internal/testwait"
	"github.com/swarmiji/swarmiji/outbox"
)

// TestSettle shows that one call stores all kinds of outcomes, and touches no other row.
func TestSettle(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, d *database) {
		s, ctx := d.open(t), testwait.Long(t)
		d.submit(t, s, numbered("m", "", 8)...)
		rows := waiting(t, s)
		must(t, s.Settle(ctx, outbox.Settlement{
			Sent:   []outbox.Ref{rows[0].Ref(), rows[1].Ref()},
			Failed: []outbox.Failure{{Ref: rows[2].Ref(), Reason: "away\x00"}, {Ref: rows[3].Ref(), Reason: "late", After: time.Hour}},
			Dead:   []outbox.Failure{{Ref: rows[4].Ref(), Reason: "too large"}, {Ref: rows[5].Ref(), Reason: "malformed"}},
		}))
		left := waiting(t, s)
		if got := ids(left); !slices.Equal(got, []string{"m2", "m6", "m7"}) {
			t.Fatalf("a relay reads %v", got)
		}
		if left[0].Failures != 1 || left[1].Failures != 0 {
			t.Errorf("the failed message has %d failures, the next one %d", left[0].Failures, left[1].Failures)
		}
		st, err := s.Stats(ctx)
		must(t, err)
		if st.Waiting != 4 || st.Failing != 2 || st.Dead != 2 || st.Reason != "away" {
			t.Errorf("%+v", st)
		}
		dead, err := s.Dead(ctx, 10)
		must(t, err)
		if len(dead) != 2 || dead[0].ID != "m4" || dead[0].Reason != "too large" || dead[1].ID != "m5" || dead[1].Reason != "malformed" {
			t.Errorf("the dead messages are %+v", dead)
		}
	})
}

// TestNumberAgain shows that a late outcome does not touch another message that has got the number
// of its row. PostgreSQL gives a number again if a crash undid a commit that did not wait for the
// disk.
func TestNumberAgain(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, d *database) {
		s, ctx := d.open(t), testwait.Long(t)
		d.submit(t, s, numbered("lost", "", 3)...)
		lost := waiting(t, s)
		// As if they were stored after the crash.
		_, err := sqltest.OpenSQL(t, d.url).ExecContext(ctx, "UPDATE swarmiji_outbox SET id = 'next' || seq")
		must(t, err)
		must(t, s.Settle(ctx, outbox.Settlement{
			Sent:   []outbox.Ref{lost[0].Ref()},
			Failed: []outbox.Failure{{Ref: lost[1].Ref(), After: time.Hour}},
			Dead:   []outbox.Failure{{Ref: lost[2].Ref()}},
		}))
		st, err := s.Stats(ctx)
		must(t, err)
		if got := len(waiting(t, s)); got != 3 || st.Dead != 0 {
			t.Errorf("%d messages wait and %d are dead, want 3 and 0", got, st.Dead)
		}
	})
}

// TestSettleFar shows that the outcomes of a page are stored in time over a slow link. With a trip
// for each row a relay repeated them forever, and sent nothing more.
func TestSettleFar(t *testing.T) {
	t.Parallel()
	d, ctx := postgres(t), testwait.Long(t)
	near := d.open(t)
	d.submit(t, near, numbered("m", "", 200)...)
	link := testserver.NewProxy(t, sqltest.Addr(t, d.url))
	far := (&database{link.URL(d.url)}).open(t)
	var o outbox.Settlement
	for i, r := range waiting(t, far) {
		f := outbox.Failure{Ref: r.Ref(), Reason: strings.Repeat("x", 1000)}
		if i%2 == 0 {
			o.Dead = append(o.Dead, f)
		} else {
			o.Failed = append(o.Failed, f)
		}
	}
	link.Latency(25*time.Millisecond, 0) // 300 trips take 15 s
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if err := far.Settle(ctx, o); err != nil {
		t.Error(err)
	}
	st, err := near.Stats(testwait.Long(t))
	must(t, err)
	if st.Dead != 100 || st.Failing != 100 || st.Waiting != 100 {
		t.Errorf("%+v, want 100 dead and 100 failing messages", st)
	}
}

// TestReadFailed shows that a page has few of the messages that failed, or many if the caller asks.
func TestReadFailed(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, d *database) {
		s, ctx := d.open(t), testwait.Long(t)
		d.submit(t, s, numbered("m", "", 500)...)
		_, err := sqltest.OpenSQL(t, d.url).ExecContext(ctx, "UPDATE swarmiji_outbox SET bucket = seq % 64, failures = 1, retry = 1")
		must(t, err)
		d.submit(t, s, numbered("fresh", "", 3)...)
		for many, want := range map[bool]int{false: 32 + 3, true: 256 + 3} {
			rows, err := s.Read(ctx, all(), many)
			must(t, err)
			if len(rows) != want {
				t.Errorf("many %v: %d messages, want %d", many, len(rows), want)
			}
		}
	})
}

package sqloutbox_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/testwait"
	"github.com/swarmiji/swarmiji/outbox"
	"github.com/swarmiji/swarmiji/outbox/sqloutbox"
)

// all are the buckets of a relay that is alone.
func all() []int {
	b := make([]int, outbox.Buckets)
	for i := range b {
		b[i] = i
	}
	return b
}

// waiting returns the messages that a relay would read.
func waiting(t testing.TB, s outbox.Store) []outbox.Row {
	t.Helper()
	rows, err := s.Read(testwait.Long(t), all(), false)
	must(t, err)
	return rows
}

func ids(rows []outbox.Row) []string {
	var s []string
	for _, r := range rows {
		s = append(s, r.Message.ID)
	}
	return s
}

// TestContent shows that a message comes back as it was stored, only after the commit, and not
// after a rollback.
func TestContent(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, d *database) {
		s, ctx := d.open(t), testwait.Long(t)
		day := time.Now().Add(24 * time.Hour).Truncate(time.Millisecond).UTC().Round(0)
		full := broker.Outgoing{Queue: "work.a", OrderKey: "order 7/ß", At: day, Message: &broker.Message{
			ID: "full", Generation: 3, ContentType: "application/json", Priority: 40, Key: "Kündin 7", Weight: 9, Expires: day.Add(time.Hour), Body: []byte{0, 1, 255},
			Headers:    map[string]any{"a": "text", "b": []byte{1}, "c": int64(-3), "d": true, "e": 1.5},
			Properties: map[string]string{"type": "x"},
		}}
		bare := broker.Outgoing{Queue: "work.b", Message: &broker.Message{ID: "bare"}}
		lost := d.begin(t)
		must(t, s.PublishTx(ctx, lost.Tx, numbered("lost", "", 3)))
		must(t, lost.Rollback())
		u := d.begin(t)
		must(t, s.PublishTx(ctx, u.Tx, []broker.Outgoing{full, bare}))
		if got := waiting(t, s); len(got) > 0 {
			t.Errorf("before the commit a relay reads %v", ids(got))
		}
		must(t, u.Commit())
		got := waiting(t, s)
		if len(got) != 2 {
			t.Fatalf("after the commit a relay reads %v", ids(got))
		}
		if diff := cmp.Diff([]broker.Outgoing{full, bare}, []broker.Outgoing{got[0].Outgoing, got[1].Outgoing}, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("stored and read differ:\n%s", diff)
		}
	})
}

// TestDelay shows that a time from now is a time of the database's clock.
func TestDelay(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, d *database) {
		s := d.open(t)
		begun := time.Now()
		ms := numbered("m", "", 2)
		ms[0].At, ms[1].At = begun.Add(time.Hour), begun.Add(-time.Hour)
		d.submit(t, s, ms...)
		got := waiting(t, s)
		if len(got) != 2 {
			t.Fatalf("a relay reads %v", ids(got))
		}
		left, fromNow := broker.FromNow(got[0].At)
		if !fromNow || time.Now().Add(left).Before(begun.Add(time.Hour)) || left > time.Hour+time.Second {
			t.Errorf("an hour from now is read as %v, from now: %v", left, fromNow)
		}
		if !got[1].At.IsZero() {
			t.Errorf("a time in the past is read as %v, want at once", got[1].At)
		}
	})
}

// TestRepeated shows that a message that is stored already is not stored again.
func TestRepeated(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, d *database) {
		s := d.open(t)
		d.submit(t, s, numbered("m", "k", 2)...)
		again := append(numbered("m", "other", 3), numbered("m", "", 3)...)
		d.submit(t, s, again...)
		next := numbered("m", "k", 1)
		next[0].Message.Generation = 1
		d.submit(t, s, next...)
		if got := ids(waiting(t, s)); !slices.Equal(got, []string{"m0", "m1", "m2", "m0"}) {
			t.Errorf("a relay reads %v, want each id and generation once", got)
		}
	})
}

// TestMany shows that a call may have more messages and bytes than one statement.
func TestMany(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, d *database) {
		s, ctx := d.open(t), testwait.Long(t)
		ms := numbered("m", "k", 230)
		for i := range 3 {
			ms[i].Message.Body = make([]byte, 3<<20)
		}
		d.submit(t, s, ms...)
		var got []string
		for range 200 {
			rows := waiting(t, s)
			if len(rows) == 0 {
				break
			}
			var sent []outbox.Ref
			size := 0
			for _, r := range rows {
				sent = append(sent, r.Ref())
				size += len(r.Message.Body)
			}
			if size > 8<<20 {
				t.Errorf("a page has %d bytes", size)
			}
			got = append(got, ids(rows)...)
			must(t, s.Settle(ctx, outbox.Settlement{Sent: sent}))
		}
		var want []string
		for _, m := range ms {
			want = append(want, m.Message.ID)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("read in this order:\n%s", diff)
		}
	})
}

// TestRefused shows that a refused message leaves the transaction usable, with nothing stored.
func TestRefused(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, d *database) {
		s, ctx := d.open(t, func(c *sqloutbox.Config) { c.MaxBody = 100 }), testwait.Long(t)
		u := d.begin(t)
		for name, c := range map[string]struct {
			spoil func(*broker.Outgoing)
			want  error
		}{
			"large body":   {func(o *broker.Outgoing) { o.Message.Body = make([]byte, 101) }, broker.ErrTooLarge},
			"no message":   {func(o *broker.Outgoing) { o.Message = nil }, broker.ErrMalformed},
			"bad queue":    {func(o *broker.Outgoing) { o.Queue = "a b" }, broker.ErrMalformed},
			"NUL in key":   {func(o *broker.Outgoing) { o.OrderKey = "a\x00" }, broker.ErrMalformed},
			"long key":     {func(o *broker.Outgoing) { o.OrderKey = strings.Repeat("k", 256) }, broker.ErrMalformed},
			"content type": {func(o *broker.Outgoing) { o.Message.ContentType = "\xff" }, broker.ErrMalformed},
			"header":       {func(o *broker.Outgoing) { o.Message.Headers = map[string]any{"a": struct{}{}} }, broker.ErrMalformed},
		} {
			ms := numbered("bad", "", 2)
			c.spoil(&ms[1])
			if err := s.PublishTx(ctx, u.Tx, ms); !errors.Is(err, c.want) {
				t.Errorf("%s: %v, want %v", name, err, c.want)
			}
		}
		must(t, s.PublishTx(ctx, u.Tx, nil))
		must(t, s.PublishTx(ctx, u.Tx, numbered("good", "", 1)))
		must(t, u.Commit())
		if got := ids(waiting(t, s)); !slices.Equal(got, []string{"good0"}) {
			t.Errorf("a relay reads %v", got)
		}
	})
}

// TestOtherDatabase shows that a transaction of another database is refused and can continue. It
// may be of any kind, with an outbox or without.
func TestOtherDatabase(t *testing.T) {
	t.Parallel()
	all := map[string]*database{
		"sqlite": sqlite(t), "sqlite with outbox": sqlite(t), "postgres": postgres(t), "postgres with outbox": postgres(t),
	}
	all["sqlite with outbox"].open(t)
	all["postgres with outbox"].open(t)
	for kind, own := range map[string]*database{"sqlite": sqlite(t), "postgres": postgres(t)} {
		s := own.open(t)
		for name, d := range all {
			u := d.begin(t)
			if err := s.PublishTx(testwait.Long(t), u.Tx, numbered("m", "", 1)); !errors.Is(err, broker.ErrUnsupported) {
				t.Errorf("outbox on %s, transaction on %s: %v, want ErrUnsupported", kind, name, err)
			}
			if _, err := u.Tx.Exec(testwait.Long(t), "CREATE TABLE still_works (a integer)"); err != nil {
				t.Errorf("outbox on %s, transaction on %s: then %v", kind, name, err)
			}
			must(t, u.Rollback())
		}
	}
}

// TestNotAllowed shows that a transaction that may not write to the outbox is refused and can
// continue.
func TestNotAllowed(t *testing.T) {
	t.Parallel()
	d := postgres(t)
	s, ctx := d.open(t), testwait.Long(t)
	for name, c := range map[string]struct {
		first string
		want  error
	}{
		"role":      {"CREATE ROLE outbox_reader; SET LOCAL ROLE outbox_reader", broker.ErrAccess},
		"read only": {"SET TRANSACTION READ ONLY", broker.ErrAccess},
	} {
		u := d.begin(t)
		for text := range strings.SplitSeq(c.first, ";") {
			_, err := u.Tx.Exec(ctx, text)
			must(t, err)
		}
		if err := s.PublishTx(ctx, u.Tx, numbered("m", "", 1)); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
		if _, err := u.Tx.Exec(ctx, "SELECT 1"); err != nil {
			t.Errorf("%s: then %v", name, err)
		}
		must(t, u.Rollback())
	}
}

// TestSearchPath shows that the search path of a transaction has no effect.
func TestSearchPath(t *testing.T) {
	t.Parallel()
	d := postgres(t)
	s, ctx := d.open(t), testwait.Long(t)
	u := d.begin(t)
	_, err := u.Tx.Exec(ctx, "SET LOCAL search_path = pg_temp")
	must(t, err)
	must(t, s.PublishTx(ctx, u.Tx, numbered("m", "", 1)))
	must(t, u.Commit())
	st, err := s.Stats(ctx)
	must(t, err)
	if st.Waiting != 1 {
		t.Errorf("%d messages are stored, want 1", st.Waiting)
	}
}

// TestUnprepared shows that PublishTx in a transaction that has locked the file says what to do,
// and that the transaction continues.
func TestUnprepared(t *testing.T) {
	t.Parallel()
	d := sqlite(t)
	u := d.begin(t)
	_, err := u.Tx.Exec(testwait.Long(t), "CREATE TABLE purchase (a integer)")
	must(t, err)
	fresh := d.unprepared(t)
	if err := fresh.PublishTx(testwait.Long(t), u.Tx, numbered("m", "", 1)); !errors.Is(err, broker.ErrUnavailable) || !strings.Contains(err.Error(), "before the transaction begins") {
		t.Errorf("%v, want ErrUnavailable and what to do", err)
	}
	must(t, u.Commit())
	must(t, fresh.Prepare(testwait.Long(t)))
	d.submit(t, fresh, numbered("m", "", 1)...)
}

// TestVisibleLate shows that a message whose transaction commits late is found, in front of those
// with greater numbers that committed first.
func TestVisibleLate(t *testing.T) {
	t.Parallel()
	d := postgres(t)
	s, ctx := d.open(t), testwait.Long(t)
	late := d.begin(t)
	must(t, s.PublishTx(ctx, late.Tx, numbered("late", "k", 1)))
	d.submit(t, s, numbered("early", "k", 1)...)
	if got := ids(waiting(t, s)); !slices.Equal(got, []string{"early0"}) {
		t.Errorf("before the late commit a relay reads %v", got)
	}
	must(t, late.Commit())
	d.submit(t, s, numbered("after", "k", 1)...)
	if got := ids(waiting(t, s)); !slices.Equal(got, []string{"late0", "early0", "after0"}) {
		t.Errorf("after the late commit a relay reads %v", got)
	}
}

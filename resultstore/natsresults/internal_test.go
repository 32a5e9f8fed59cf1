package natsresults

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/swarmiji/swarmiji/broker/natsbroker/embedded"
	"github.com/swarmiji/swarmiji/internal/natsconn"
	"github.com/swarmiji/swarmiji/internal/testwait"
	"github.com/swarmiji/swarmiji/internal/wire"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/task"
)

// A caller stops after ErrClosed. An error of a connection that will be replaced must therefore not
// become ErrClosed.
func TestClosedMeansForGood(t *testing.T) {
	for name, c := range map[string]struct{ err, want, not error }{
		"closed":                {natsconn.ErrClosed, resultstore.ErrClosed, resultstore.ErrUnavailable},
		"one connection closed": {fmt.Errorf("%w: %w", natsconn.ErrUnavailable, natsconn.ErrClosed), resultstore.ErrUnavailable, resultstore.ErrClosed},
		"access":                {natsconn.ErrAccess, resultstore.ErrUnavailable, resultstore.ErrClosed},
		"no room":               {natsconn.ErrBlocked, resultstore.ErrUnavailable, resultstore.ErrTooLarge},
	} {
		t.Run(name, func(t *testing.T) {
			err := failure("test", c.err)
			if !errors.Is(err, c.want) || errors.Is(err, c.not) || !errors.Is(err, c.err) {
				t.Errorf("failure(%v) is %v, want %v beside it and not %v", c.err, err, c.want, c.not)
			}
		})
	}
}

func store(t *testing.T, c Config) *Store {
	t.Helper()
	srv, err := embedded.Open(t.Context(), t.TempDir(), embedded.Options{})
	if err != nil {
		t.Fatal(err)
	}
	c.Connect.InProcess = srv
	s, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		if err := errors.Join(s.Close(ctx), srv.Close(ctx)); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return s
}

// The test counts the round trips that Save makes.
func TestTripsOfASave(t *testing.T) {
	s := store(t, Config{})
	ctx := t.Context()
	nc, err := s.conn.NATS(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.open(ctx); err != nil {
		t.Fatal(err)
	}
	sent := func(r resultstore.Record) uint64 {
		before := nc.Stats().OutMsgs
		if err := s.Save(ctx, r); err != nil {
			t.Fatal(err)
		}
		return nc.Stats().OutMsgs - before
	}
	r := resultstore.Record{ID: "a", State: task.StateSucceeded, Deliveries: 1}
	if n := sent(r); n != 1 {
		t.Errorf("the first record of a task took %d messages to the server, want 1", n)
	}
	r.ReplyTo, r.ID = "node", "b"
	if n := sent(r); n != 2 {
		t.Errorf("a record with its notification took %d messages, want 2", n)
	}
	r.ReplyTo, r.ID = "", "c"
	for i, state := range []task.State{task.StateStarted, task.StateRetrying, task.StateStarted, task.StateSucceeded} {
		r.State, r.Generation = state, i/2
		if n := sent(r); n != 1 {
			t.Errorf("record %d of a task that this store follows took %d messages, want 1", i, n)
		}
	}
	if n := len(s.recent.tags); n != 0 {
		t.Errorf("%d tasks are remembered after their ends", n)
	}
}

// If the server behind the connected one dies, its answer never comes although the connection stays
// open. Save repeats the request before its ctx ends.
func TestAnswerThatNeverComes(t *testing.T) {
	s := store(t, Config{})
	s.try = 50 * time.Millisecond
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	js, err := s.conn.JetStream(ctx)
	if err != nil {
		t.Fatal(err)
	}
	_, err = js.CreateStream(ctx, jetstream.StreamConfig{
		Name: s.names.stream, Subjects: []string{s.names.records + "*"}, MaxMsgsPerSubject: 1, AllowMsgTTL: true, NoAck: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	r := resultstore.Record{ID: "a", State: task.StateSucceeded, Generation: 2}
	if err := s.Save(ctx, r); err != nil {
		t.Errorf("Save of which the answer is lost: %v", err)
	}
	if got, err := s.Load(ctx, "a"); err != nil || got.Generation != 2 {
		t.Errorf("Load: %+v, %v", got, err)
	}
	r.Generation = 1
	if err := s.Save(ctx, r); !errors.Is(err, resultstore.ErrStale) {
		t.Errorf("Save of an older token of which the answer is lost: %v, want ErrStale", err)
	}
}

// Outdated stream settings do not delay calls while the servers elect a leader and give no answer.
func TestStreamThatIsNotFresh(t *testing.T) {
	s := store(t, Config{})
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	st, err := s.open(ctx)
	if err != nil {
		t.Fatal(err)
	}
	stale := *st
	stale.since = time.Now().Add(-2 * freshness)
	s.stream.Store(&stale)
	s.opening <- struct{}{} // another call waits for an answer
	if got, err := s.open(ctx); err != nil || got != &stale {
		t.Errorf("open while another call asks: %v, %v, want what is known", got, err)
	}
	<-s.opening
	s.try = time.Nanosecond // too short for any answer
	if got, err := s.open(ctx); err != nil || got.direct != st.direct {
		t.Errorf("open without an answer: %v, %v, want what is known", got, err)
	}
	if left := time.Until(s.stream.Load().since.Add(freshness)); left <= 0 || left > staleness {
		t.Errorf("the next call asks in %v, want %v at most", left, staleness)
	}
	s.try = defaultTry
	s.stream.Store(&stale)
	if got, err := s.open(ctx); err != nil || time.Since(got.since) > freshness {
		t.Errorf("open with an answer: %v, %v, want a fresh one", got, err)
	}
}

func TestMemoryOfRecordsIsBounded(t *testing.T) {
	var m recent
	for i := range 3 * maxRecent {
		m.note(&resultstore.Record{ID: task.ID(fmt.Sprint(i)), State: task.StateStarted}, 1)
		if len(m.tags) > maxRecent {
			t.Fatalf("%d records are remembered", len(m.tags))
		}
	}
}

// An older server silently ignores AllowMsgTTL. The store then sets the stream's MaxAge, and Load
// ignores expired records.
func TestServerWithoutTimesOfMessages(t *testing.T) {
	s := store(t, Config{TTL: time.Hour})
	ctx := t.Context()
	js, err := s.conn.JetStream(ctx)
	if err != nil {
		t.Fatal(err)
	}
	asked, change := s.merge(jetstream.StreamConfig{Name: "S"})
	if !change || !asked.AllowMsgTTL || asked.MaxAge != time.Hour {
		t.Errorf("merge asks for %+v, want AllowMsgTTL, and MaxAge in case that it is not known", asked)
	}
	if again, change := s.merge(jetstream.StreamConfig{Name: "S", MaxAge: time.Hour}); change {
		t.Errorf("merge asks a server again that has left AllowMsgTTL out: %+v", again)
	}
	_, err = js.CreateStream(ctx, jetstream.StreamConfig{
		Name: s.names.stream, Subjects: []string{s.names.records + "*"}, MaxMsgsPerSubject: 1, AllowDirect: true, MaxAge: time.Hour,
	})
	if err != nil {
		t.Fatal(err)
	}
	s.stream.Store(&stream{direct: true, maxAge: time.Hour, since: time.Now()})
	short := resultstore.Record{ID: "short", State: task.StateSucceeded, Generation: 3, TTL: 50 * time.Millisecond}
	long := resultstore.Record{ID: "long", State: task.StateSucceeded, TTL: time.Minute}
	for _, r := range []resultstore.Record{short, long} {
		if err := s.Save(ctx, r); err != nil {
			t.Fatal(err)
		}
	}
	deadline := time.Now().Add(10 * time.Second)
	for {
		if _, err := s.Load(ctx, "short"); errors.Is(err, resultstore.ErrNotFound) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("a record is still found long after its time")
		}
	}
	if _, err := s.Load(ctx, "long"); err != nil {
		t.Errorf("the record with a longer time: %v", err)
	}
	short.Generation = 1
	if err := s.Save(ctx, short); err != nil {
		t.Errorf("Save of an older token over one whose time is over: %v", err)
	}
}

func TestLifetime(t *testing.T) {
	s := &Store{cfg: Config{TTL: 90 * time.Second}}
	for ttl, want := range map[time.Duration]struct {
		seconds int64
		exact   time.Duration
	}{
		0:                          {90, 90 * time.Second},
		-1:                         {90, 90 * time.Second},
		1:                          {1, time.Millisecond},
		300 * time.Millisecond:     {1, 300 * time.Millisecond},
		time.Second:                {1, time.Second},
		1500 * time.Millisecond:    {2, 1500 * time.Millisecond},
		time.Duration(1<<63 - 1):   {int64(maxTTL / time.Second), maxTTL},
		time.Hour + 1:              {3601, time.Hour + time.Millisecond},
		24*time.Hour - time.Second: {86399, 86399 * time.Second},
	} {
		if seconds, exact := s.lifetime(ttl); seconds != want.seconds || exact != want.exact {
			t.Errorf("lifetime(%v) is %d s and %v, want %d s and %v", ttl, seconds, exact, want.seconds, want.exact)
		}
	}
}

func TestTokensAreDifferent(t *testing.T) {
	seen := map[string]string{}
	for _, s := range []string{"a", "A", "a.b", "a*b", "a>b", "a=b", "a=2Eb", "a%2Eb", "a b", "a_b", "a-b", "~", "=7E"} {
		got := token(s)
		if other, twice := seen[got]; twice {
			t.Errorf("%q and %q have the same token %q", s, other, got)
		}
		seen[got] = s
		for i := range len(got) {
			if c := got[i]; !plain(c) && c != '=' {
				t.Errorf("the token of %q holds %q", s, c)
			}
		}
	}
}

// The test counts the round trips of Arrive and Begin and checks the limits of a group.
func TestTripsOfAGroup(t *testing.T) {
	s := store(t, Config{})
	ctx := t.Context()
	nc, err := s.conn.NATS(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.open(ctx); err != nil {
		t.Fatal(err)
	}
	trips := func(what string, want uint64, do func() error) {
		t.Helper()
		before := nc.Stats().OutMsgs
		if err := do(); err != nil {
			t.Fatal(err)
		}
		if n := nc.Stats().OutMsgs - before; n != want {
			t.Errorf("%s took %d messages to the server, want %d", what, n, want)
		}
	}
	begin := func(which string, want bool) func() error {
		return func() error {
			got, err := s.Begin(ctx, "task", which, 0)
			if got != want {
				t.Errorf("copy %q is the first: %v", which, got)
			}
			return err
		}
	}
	trips("the first copy", 1, begin("one", true))
	trips("another copy", 2, begin("two", false))
	trips("the first copy again", 2, begin("one", true))
	a := resultstore.Arrival{Group: "g", Index: 1, Size: 3, Record: resultstore.Record{ID: "m1", State: task.StateSucceeded}}
	trips("a member", 3, func() error { _, err := s.Arrive(ctx, a); return err })
	for _, a := range []resultstore.Arrival{{Index: 1 << 30}, {Size: 1 << 30}} {
		a.Group, a.Record = "huge", resultstore.Record{ID: "m", State: task.StateSucceeded}
		if _, err := s.Arrive(ctx, a); !errors.Is(err, resultstore.ErrMalformed) {
			t.Errorf("member %d of %d: %v", a.Index, a.Size, err)
		}
	}
}

// A process stored the end of a member and died before it changed the group's state. When the
// member runs again with another end, the group counts the stored end.
func TestMemberOfADeadProcess(t *testing.T) {
	s := store(t, Config{})
	ctx := t.Context()
	st, err := s.open(ctx)
	if err != nil {
		t.Fatal(err)
	}
	a := resultstore.Arrival{Group: "g", Size: 2, Record: resultstore.Record{ID: "m0", State: task.StateSucceeded}}
	body, err := wire.EncodeRecord(&a.Record)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.addMember(ctx, st, &a, body, time.Minute); err != nil {
		t.Fatal(err)
	}
	a.Record.State, a.Record.Error, a.Decides = task.StateFailed, &task.RemoteError{Type: "t"}, true
	got, err := s.Arrive(ctx, a)
	if want := (resultstore.Gathered{Size: 2, Done: 1, Decider: -1}); err != nil || got != want {
		t.Errorf("the group is %+v, %v; want %+v", got, err, want)
	}
}

// The test counts the round trips of claims, and shows that a claim longer than the server's
// retention is refused.
func TestTripsOfAClaim(t *testing.T) {
	s := store(t, Config{})
	ctx := t.Context()
	nc, err := s.conn.NATS(ctx)
	if err != nil {
		t.Fatal(err)
	}
	st, err := s.open(ctx)
	if err != nil {
		t.Fatal(err)
	}
	trips := func(what string, want uint64, do func() error) {
		t.Helper()
		before := nc.Stats().OutMsgs
		if err := do(); err != nil {
			t.Fatal(err)
		}
		if n := nc.Stats().OutMsgs - before; n != want {
			t.Errorf("%s took %d messages to the server, want %d", what, n, want)
		}
	}
	claim := func(holder string) func() error {
		return func() error { _, err := s.Claim(ctx, "key", holder, time.Hour); return err }
	}
	trips("the first claim", 1, claim("one"))
	trips("another one", 2, claim("two"))
	trips("to pass it on", 2, func() error { return s.Pass(ctx, "key", "one", "two", time.Hour) })
	trips("to release it", 2, func() error { return s.Release(ctx, "key", "two") })
	trips("a claim after that", 1, claim("three"))

	short := *st
	short.maxAge = time.Minute
	s.stream.Store(&short)
	if _, err := s.Claim(ctx, "other", "one", time.Hour); !errors.Is(err, resultstore.ErrMalformed) {
		t.Errorf("a claim for an hour in a stream of a minute: %v, want ErrMalformed", err)
	}
	if winner, err := s.Claim(ctx, "other", "one", time.Minute); err != nil || winner != "one" {
		t.Errorf("a claim for a minute: %q, %v", winner, err)
	}
	if _, err := s.Swap(ctx, "value", nil, []byte("one"), time.Second); !errors.Is(err, resultstore.ErrUnsupported) {
		t.Errorf("a value in a stream of a minute: %v, want ErrUnsupported", err)
	}
}

// Members are stored with the retention of the undecided group. Once the group is decided, each
// member's message gets the shorter retention.
func TestMembersAreShortened(t *testing.T) {
	s := store(t, Config{})
	const size = 5
	for name, last := range map[string]resultstore.Arrival{
		"the last one": {Index: size - 1, Size: size, Record: resultstore.Record{State: task.StateSucceeded}},
		"a failure":    {Index: size, Size: size + 4, Decides: true, Record: resultstore.Record{State: task.StateFailed}},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, group := t.Context(), task.ID("group-"+fmt.Sprint(last.Index))
			left := func(i int) time.Duration {
				st, err := s.open(ctx)
				if err != nil {
					t.Fatal(err)
				}
				_, _, left, err := s.getTimed(ctx, st, memberKey(group, i))
				if err != nil {
					t.Fatal(err)
				}
				return left
			}
			arrive := func(a resultstore.Arrival) {
				t.Helper()
				a.Group, a.Record.ID, a.TTL = group, task.ID(fmt.Sprint("m", a.Index)), time.Hour
				if _, err := s.Arrive(ctx, a); err != nil {
					t.Fatal(err)
				}
			}
			for i := range size - 1 {
				arrive(resultstore.Arrival{Index: i, Record: resultstore.Record{State: task.StateSucceeded}})
				if got := left(i); got < resultstore.DefaultGroupWait {
					t.Fatalf("member %d of a group that is not decided is kept for %v", i, got)
				}
			}
			arrive(last)
			for i := range size - 1 {
				testwait.Until(t, fmt.Sprintf("member %d is kept as long as the group", i), func() bool {
					got := left(i)
					if got < time.Hour {
						t.Fatalf("member %d is kept for %v, its group for an hour", i, got)
					}
					return got <= 2*time.Hour+time.Minute
				})
			}
			if got := left(last.Index); got < time.Hour || got > 2*time.Hour+time.Minute {
				t.Errorf("the member that decides is kept for %v", got)
			}
		})
	}
}

// A submitter that does not read uses limited memory: what arrives while the buffer is full is
// dropped. Load finds the missed records.
func TestStuckSubmitter(t *testing.T) {
	s := store(t, Config{Buffer: 5})
	stream, err := s.Notify(testwait.Long(t), "node")
	if err != nil {
		t.Fatal(err)
	}
	n := stream.(*notifications)
	const saved = 50
	for i := range saved {
		r := resultstore.Record{
			ID: task.ID(fmt.Sprint("task-", i)), Name: "add", State: task.StateSucceeded, NodeID: "consumer", ReplyTo: "node",
			StartedAt: time.UnixMilli(1), FinishedAt: time.UnixMilli(2),
		}
		if err := s.Save(testwait.Long(t), r); err != nil {
			t.Fatalf("Save: %v", err)
		}
	}
	testwait.Until(t, "all notifications passed the stream", func() bool {
		got, err := n.sub.Delivered()
		return err == nil && got == saved
	})
	got := 0
	for ; ; got++ {
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		_, err := n.Receive(ctx)
		cancel()
		if err != nil {
			break
		}
	}
	// one more if the last notification finds the place of the first one that was read
	if got < 5 || got > 6 {
		t.Errorf("%d notifications waited, want the buffer's 5", got)
	}
	if r, err := s.Load(testwait.Long(t), "task-49"); err != nil || r.State != task.StateSucceeded {
		t.Errorf("Load of a missed record: %v, %v", r.State, err)
	}
}

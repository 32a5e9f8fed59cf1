package redisevents_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/events/redisevents"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/internal/testwait"
)

func keeping(r events.Retention) func(*redisevents.Config) {
	return func(c *redisevents.Config) { c.Retain = r }
}

func replay(t testing.TB, b *redisevents.Bus, since time.Time) events.Subscription {
	t.Helper()
	s, err := b.Replay(testwait.Long(t), events.Filter{}, since)
	if err != nil {
		t.Fatalf("Replay: %v", err)
	}
	return s
}

// publishAll publishes the events of tasks from to below to, and waits until s has received them.
func publishAll(t testing.TB, b *redisevents.Bus, s events.Subscription, from, to int) {
	t.Helper()
	for i := from; i < to; i++ {
		publish(t, b, i)
	}
	want(t, s, from, to)
}

// The layout is public: other programs read these entries.
func TestLayout(t *testing.T) {
	srv := testserver.RequireRedis(t)
	ns := testserver.Namespace()
	b := open(t, options(srv, srv.Addr()), ns, keeping(events.Retention{Age: time.Minute, Types: []string{events.TaskStarted}}))
	live := subscribe(t, b, events.Filter{})
	publishAll(t, b, live, 0, 250)
	if err := b.Publish(t.Context(), events.Event{Type: events.TaskRevoked, TaskID: "x"}); err != nil {
		t.Fatal(err)
	}
	receive(t, live)
	key := "swj:ev:{" + ns + "}:kept"
	var total int
	for _, e := range do(t, srv, "XRANGE", key, "-", "+").([]any) {
		fields := e.([]any)[1].([]any)
		if len(fields) != 4 || fields[0] != "s" || fields[2] != "e" {
			t.Fatalf("an entry has the fields %.200v, want s and e", fields)
		}
		es, err := events.Decode([]byte(fields[3].(string)))
		if err != nil {
			t.Fatal(err)
		}
		total += len(es)
		if fields[1] != strconv.Itoa(total) {
			t.Errorf("s is %v after %d events", fields[1], total)
		}
	}
	if total != 250 {
		t.Errorf("%d events are kept, want the 250 of the kept type", total)
	}
	if ms := do(t, srv, "PTTL", key).(int64); ms <= 30_000 || ms > 60_000 {
		t.Errorf("the stream expires in %d ms, want the age", ms)
	}
}

// Messages that are too old or too many are removed whole when new ones are kept.
func TestRetentionTakesHold(t *testing.T) {
	srv := testserver.RequireRedis(t)
	ns := testserver.Namespace()
	r := events.Retention{Age: time.Minute, Max: 200}
	b := open(t, options(srv, srv.Addr()), ns, keeping(r))
	live := subscribe(t, b, events.Filter{})
	publishAll(t, b, live, 0, 2000)
	length := func() int64 { return do(t, srv, "XLEN", "swj:ev:{"+ns+"}:kept").(int64) }
	if n := length(); n > 100 {
		t.Errorf("%d messages are kept of 2000 events with Max 200", n)
	}
	s := replay(t, b, time.Time{})
	first := receive(t, s)
	if i := index(t, first); i > 1800 || i < 1500 {
		t.Errorf("the oldest kept event is that of task %d of 2000, want at least the newest 200 and not many more", i)
	}

	short := open(t, options(srv, srv.Addr()), ns, keeping(events.Retention{Age: 300 * time.Millisecond}))
	ctx := testwait.Long(t)
	for i := 3000; ; i++ {
		publishAll(t, short, live, i, i+1)
		if oldest := index(t, receive(t, replay(t, short, time.Time{}))); oldest > 3000 {
			break
		}
		if ctx.Err() != nil {
			t.Fatal("messages are kept for longer than their age while new ones come")
		}
	}
	for length() > 0 {
		if ctx.Err() != nil {
			t.Fatal("a quiet stream does not expire")
		}
		pause(t)
	}
}

// A reader that is slower than the retention misses removed events and counts them.
func TestSlowReplayCountsWhatItMissed(t *testing.T) {
	srv := testserver.RequireRedis(t)
	b := open(t, options(srv, srv.Addr()), testserver.Namespace(), keeping(events.Retention{Age: time.Minute, Max: 100}))
	live, slow := subscribe(t, b, events.Filter{}), replay(t, b, time.Time{})
	publishAll(t, b, live, 0, 50)
	want(t, slow, 0, 50)
	const n = 5000
	publishAll(t, b, live, 50, n)
	got := 50
	next := 50
	for next < n {
		i := index(t, receive(t, slow))
		if i < next {
			t.Fatalf("event %d came after event %d", i, next-1)
		}
		got++
		next = i + 1
	}
	if d := slow.(events.DropCounter).Dropped(); d != uint64(n-got) || d == 0 {
		t.Errorf("Dropped is %d; %d events were kept and %d received", d, n, got)
	}
}

// The position of a reader survives cut connections, killed servers and lost scripts without a gap.
func TestReplayThroughFaults(t *testing.T) {
	t.Parallel()
	srv := testserver.OwnRedis(t, testserver.RedisConfig{AOF: "always"})
	proxy := testserver.NewProxy(t, srv.Addr())
	publisher := open(t, options(srv, srv.Addr()), "faults", keeping(events.Retention{Age: time.Minute}))
	s := replay(t, open(t, options(srv, proxy.Addr()), "faults", keeping(events.Retention{Age: time.Minute})), time.Time{})
	next := 0
	for name, fault := range map[string]func(){
		"severed": proxy.Sever,
		"cut":     func() { proxy.Cut(); publish(t, publisher, next); next++; proxy.Heal() },
		"killed connections": func() {
			if err := srv.CloseAllConnections(testwait.Long(t)); err != nil {
				t.Fatal(err)
			}
		},
		"restart": func() {
			if err := srv.Restart(testwait.Long(t)); err != nil {
				t.Fatal(err)
			}
		},
		"script flush": func() { do(t, srv, "SCRIPT", "FLUSH") },
		"none":         func() {},
	} {
		t.Log(name)
		from := next
		for range 150 {
			publish(t, publisher, next)
			next++
		}
		want(t, s, from, from+1) // the other events of its message wait
		for ctx := testwait.Long(t); ; pause(t) {
			if total := lastTotal(t, srv, "faults"); total == next {
				break
			} else if ctx.Err() != nil {
				t.Fatalf("%d of %d events are kept", total, next)
			}
		}
		before := next
		fault()
		want(t, s, from+1, before)
		want(t, s, before, next) // events published during the fault
	}
}

// Receive returns when its ctx or its stream ends, also while the network is silent.
func TestReplayOnASilentNetwork(t *testing.T) {
	srv := testserver.RequireRedis(t)
	proxy := testserver.NewProxy(t, srv.Addr())
	ns := testserver.Namespace()
	publisher := open(t, options(srv, srv.Addr()), ns, keeping(events.Retention{Age: time.Minute}))
	b := open(t, options(srv, proxy.Addr()), ns, keeping(events.Retention{Age: time.Minute}))
	s := replay(t, b, time.Time{})
	live := subscribe(t, publisher, events.Filter{})
	publishAll(t, publisher, live, 0, 10)
	want(t, s, 0, 10)
	proxy.BlackHole(true, true)
	publishAll(t, publisher, live, 10, 20)
	fresh := replayLater(t, b)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { _, err := s.Receive(ctx); ended <- err }()
	cancel()
	select {
	case err := <-ended:
		if !errors.Is(err, context.Canceled) {
			t.Errorf("Receive: %v, want ctx's error", err)
		}
	case <-time.After(5 * time.Second):
		t.Error("Receive outlives its ctx")
	}
	proxy.Heal()
	want(t, s, 10, 20)
	if err := <-fresh; err != nil {
		t.Errorf("Replay through a silent network that healed: %v", err)
	}
}

// replayLater calls Replay on a goroutine and returns a channel for its error.
func replayLater(t testing.TB, b *redisevents.Bus) <-chan error {
	ctx := testwait.Long(t)
	done := make(chan error, 1)
	go func() {
		_, err := b.Replay(ctx, events.Filter{}, time.Time{})
		done <- err
	}()
	return done
}

// A server without memory keeps no events, and live listeners still receive each event once.
func TestOutOfMemory(t *testing.T) {
	t.Parallel()
	srv := testserver.OwnRedis(t, testserver.RedisConfig{})
	b := open(t, options(srv, srv.Addr()), "oom", keeping(events.Retention{Age: time.Minute}))
	live, kept := subscribe(t, b, events.Filter{}), replay(t, b, time.Time{})
	publishAll(t, b, live, 0, 10)
	do(t, srv, "CONFIG", "SET", "maxmemory", "1")
	publishAll(t, b, live, 10, 20)
	do(t, srv, "CONFIG", "SET", "maxmemory", "0")
	publishAll(t, b, live, 20, 30)
	want(t, kept, 0, 10)
	want(t, kept, 20, 30)
	if d := b.Dropped(); d != 0 {
		t.Errorf("Dropped is %d, but all listeners heard of all events", d)
	}
}

// Foreign entries in the stream are counted and skipped.
func TestStrangeEntries(t *testing.T) {
	srv := testserver.RequireRedis(t)
	ns := testserver.Namespace()
	b := open(t, options(srv, srv.Addr()), ns, keeping(events.Retention{Age: time.Minute}))
	live := subscribe(t, b, events.Filter{})
	publishAll(t, b, live, 0, 10)
	key := "swj:ev:{" + ns + "}:kept"
	do(t, srv, "XADD", key, "*", "x", "y")
	do(t, srv, "XADD", key, "*", "s", "many", "e", "[]")
	do(t, srv, "XADD", key, "*", "e", `{"type":"mine"}`)
	publishAll(t, b, live, 10, 20)
	s := replay(t, b, time.Time{})
	want(t, s, 0, 10)
	if e := receive(t, s); e.Type != "mine" {
		t.Errorf("received %v, want the event without a count", e)
	}
	want(t, s, 10, 20)
	if d := s.(events.DropCounter).Dropped(); d != 2 {
		t.Errorf("Dropped is %d, want 2", d)
	}
}

// A key of another type is reported at once and not treated as an empty stream.
func TestAnotherKindOfKey(t *testing.T) {
	srv := testserver.RequireRedis(t)
	ns := testserver.Namespace()
	do(t, srv, "SET", "swj:ev:{"+ns+"}:kept", "x")
	b := open(t, options(srv, srv.Addr()), ns, keeping(events.Retention{Age: time.Minute}))
	_, err := replay(t, b, time.Time{}).Receive(testwait.Long(t))
	if !errors.Is(err, events.ErrUnavailable) || !strings.Contains(err.Error(), "WRONGTYPE") {
		t.Errorf("Receive: %v, want ErrUnavailable that says why", err)
	}
}

func index(t testing.TB, e events.Event) int {
	t.Helper()
	i, err := strconv.Atoi(strings.TrimPrefix(string(e.TaskID), "task-"))
	if err != nil {
		t.Fatalf("an event of %q", e.TaskID)
	}
	return i
}

// lastTotal returns the number of events that the server has kept so far.
func lastTotal(t testing.TB, srv *testserver.Redis, ns string) int {
	t.Helper()
	last := do(t, srv, "XREVRANGE", "swj:ev:{"+ns+"}:kept", "+", "-", "COUNT", 1).([]any)
	if len(last) == 0 {
		return 0
	}
	fields := last[0].([]any)[1].([]any)
	n, err := strconv.Atoi(fields[1].(string))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

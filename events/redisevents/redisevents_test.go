package redisevents_test

import (
	"context"
	"errors"
	"log/slog"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/events/redisevents"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/internal/testwait"
	"github.com/swarmiji/swarmiji/task"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction(testserver.Reaper),
		// The test's proxy may leave these goroutines when a connection is cut while a fault begins.
		goleak.IgnoreAnyFunction(testserver.ProxyPipe), goleak.IgnoreAnyFunction(testserver.ProxyRead))
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// options returns the options for a server that is reached through addr.
func options(srv *testserver.Redis, addr string) *redis.UniversalOptions {
	return &redis.UniversalOptions{Addrs: []string{addr}, Username: srv.User(), Password: srv.Password()}
}

// open makes a bus in namespace ns and closes it at the end of the test.
func open(t testing.TB, o *redis.UniversalOptions, ns string, change ...func(*redisevents.Config)) *redisevents.Bus {
	t.Helper()
	c := redisevents.Config{Redis: o, Namespace: ns, Logger: quiet()}
	for _, f := range change {
		f(&c)
	}
	b, err := redisevents.New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(testwait.Long(t)); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return b
}

func subscribe(t testing.TB, b *redisevents.Bus, f events.Filter) events.Subscription {
	t.Helper()
	s, err := b.Subscribe(testwait.Long(t), f)
	if err != nil {
		t.Fatalf("Subscribe: %v", err)
	}
	return s
}

// started returns the event of task i.
func started(i int) events.Event {
	return events.Event{
		Type: events.TaskStarted, TaskID: task.ID("task-" + strconv.Itoa(i)), NodeID: "node", PID: 7,
		Time: time.UnixMilli(1_700_000_000_000).UTC(),
	}
}

func publish(t testing.TB, b *redisevents.Bus, i int) {
	t.Helper()
	if err := b.Publish(t.Context(), started(i)); err != nil {
		t.Fatalf("Publish: %v", err)
	}
}

func receive(t testing.TB, s events.Subscription) events.Event {
	t.Helper()
	e, err := s.Receive(testwait.Long(t))
	if err != nil {
		t.Fatalf("Receive: %v", err)
	}
	return e
}

// want receives the events of tasks from to below to, in order.
func want(t testing.TB, s events.Subscription, from, to int) {
	t.Helper()
	for i := from; i < to; i++ {
		if e := receive(t, s); e.TaskID != started(i).TaskID {
			t.Fatalf("received the event of %s, want that of task-%d", e.TaskID, i)
		}
	}
}

// pause waits 10 ms between two checks of a loop, or until the test ends.
func pause(t testing.TB) {
	select {
	case <-time.After(10 * time.Millisecond):
	case <-t.Context().Done():
	}
}

// awaitEvents publishes until an event arrives that was published after the call.
func awaitEvents(t testing.TB, b *redisevents.Bus, s events.Subscription) {
	t.Helper()
	ctx := testwait.Long(t)
	for i := 1_000_000; ; i++ {
		publish(t, b, i)
		short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
		e, err := s.Receive(short)
		cancel()
		switch {
		case err == nil && len(e.TaskID) == len("task-1000000"):
			return
		case err != nil && !errors.Is(err, context.DeadlineExceeded):
			t.Fatalf("Receive: %v", err)
		case ctx.Err() != nil:
			t.Fatal("no event arrived any more")
		}
	}
}

func do(t testing.TB, srv *testserver.Redis, args ...any) any {
	t.Helper()
	v, err := srv.Do(testwait.Long(t), args...)
	if err != nil {
		t.Fatalf("%v: %v", args[0], err)
	}
	return v
}

func TestNewNamesEveryProblemAndNoPassword(t *testing.T) {
	_, err := redisevents.New(redisevents.Config{
		Namespace: "a.b", Buffer: -1, Retain: events.Retention{Age: -1, Max: -1},
	})
	if err == nil {
		t.Fatal("New took a configuration without a single good field")
	}
	for _, word := range []string{"redis: ", "Namespace", "Buffer", "age", "-1 events"} {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("the error does not name %s: %v", word, err)
		}
	}
}

// Without a server Publish returns at once, memory is limited, lost events are counted, and Close
// returns.
func TestPublishWithoutServer(t *testing.T) {
	const n, room = 2000, 100
	b := open(t, &redis.UniversalOptions{Addrs: []string{"127.0.0.1:1"}, Password: "hunter2"}, "none", func(c *redisevents.Config) {
		c.Batch = events.BatcherConfig{Capacity: room, SendTimeout: 200 * time.Millisecond}
	})
	begin := time.Now()
	for i := range n {
		publish(t, b, i)
	}
	if d := time.Since(begin); d > 30*time.Second {
		t.Errorf("%d events without a server took %v", n, d)
	}
	if err := b.Close(testwait.Long(t)); err != nil {
		t.Errorf("Close: %v", err)
	}
	if got := b.Dropped(); got != n {
		t.Errorf("Dropped = %d, want %d: not one could be sent", got, n)
	}
	if err := b.Publish(t.Context(), started(1)); !errors.Is(err, events.ErrClosed) {
		t.Errorf("Publish after Close: %v, want ErrClosed", err)
	}
}

// A listener that does not read uses limited memory and receives the newest events.
func TestStuckListener(t *testing.T) {
	srv := testserver.RequireRedis(t)
	ns := testserver.Namespace()
	b := open(t, options(srv, srv.Addr()), ns, func(c *redisevents.Config) { c.Buffer = 10 })
	stuck := subscribe(t, b, events.Filter{})
	quick := subscribe(t, open(t, options(srv, srv.Addr()), ns), events.Filter{})
	const n = 1000
	for i := range n {
		publish(t, b, i)
	}
	want(t, quick, 0, n)
	ctx := testwait.Long(t)
	for stuck.(events.DropCounter).Dropped() < n-10 {
		if ctx.Err() != nil {
			t.Fatalf("Dropped = %d, want %d", stuck.(events.DropCounter).Dropped(), n-10)
		}
		pause(t)
	}
	want(t, stuck, n-10, n)
}

func TestListenerOutlivesItsConnection(t *testing.T) {
	srv := testserver.RequireRedis(t)
	proxy := testserver.NewProxy(t, srv.Addr())
	b := open(t, options(srv, proxy.Addr()), testserver.Namespace())
	s := subscribe(t, b, events.Filter{})
	publish(t, b, 0)
	receive(t, s)
	for _, fault := range []func(){
		proxy.Sever,
		func() { proxy.Cut(); proxy.Heal() },
		func() {
			if err := srv.CloseAllConnections(testwait.Long(t)); err != nil {
				t.Fatal(err)
			}
		},
		func() {
			if err := srv.Restart(testwait.Long(t)); err != nil {
				t.Fatal(err)
			}
		},
		func() { do(t, srv, "SCRIPT", "FLUSH") },
	} {
		fault()
		awaitEvents(t, b, s)
	}
}

// Foreign messages on the channel are counted and skipped. Single maps of other writers are read.
func TestStrangeMessages(t *testing.T) {
	srv := testserver.RequireRedis(t)
	ns := testserver.Namespace()
	s := subscribe(t, open(t, options(srv, srv.Addr()), ns), events.Filter{})
	bad := []string{"", "nonsense", "[]", strings.Repeat("[", 1<<16)}
	for _, body := range append(bad, `{"type":"mine","n":1}`) {
		do(t, srv, "PUBLISH", "swj:ev:"+ns, body)
	}
	if e := receive(t, s); e.Type != "mine" || e.Fields["n"] != 1.0 {
		t.Errorf("received %+v, want the single map", e)
	}
	if got := s.(events.DropCounter).Dropped(); got != uint64(len(bad)) {
		t.Errorf("Dropped = %d, want %d", got, len(bad))
	}
}

// Close of a subscription ends it at the server.
func TestCloseEndsTheSubscription(t *testing.T) {
	srv := testserver.RequireRedis(t)
	ns := testserver.Namespace()
	b := open(t, options(srv, srv.Addr()), ns)
	subscribers := func() int64 {
		return do(t, srv, "PUBSUB", "NUMSUB", "swj:ev:"+ns).([]any)[1].(int64)
	}
	var subs []events.Subscription
	for range 5 {
		subs = append(subs, subscribe(t, b, events.Filter{}))
	}
	if n := subscribers(); n < 1 {
		t.Fatalf("%d subscribers when Subscribe has returned", n)
	}
	for _, s := range subs {
		if err := s.Close(testwait.Long(t)); err != nil {
			t.Fatalf("Close: %v", err)
		}
	}
	ctx := testwait.Long(t)
	for subscribers() > 0 {
		if ctx.Err() != nil {
			t.Fatalf("%d subscribers are left of 5 closed subscriptions", subscribers())
		}
		pause(t)
	}
}

func TestWrongPasswordIsToldAtOnceAndNotShown(t *testing.T) {
	srv := testserver.RequireRedis(t)
	o := options(srv, srv.Addr())
	o.Password = "hunter2"
	b := open(t, o, testserver.Namespace(), func(c *redisevents.Config) { c.Retain = events.Retention{Age: time.Minute} })
	_, err := b.Subscribe(testwait.Long(t), events.Filter{})
	_, replayErr := b.Replay(testwait.Long(t), events.Filter{}, time.Time{})
	for _, err := range []error{err, replayErr} {
		if !errors.Is(err, events.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("with a wrong password: %v, want ErrUnavailable before ctx ends", err)
		}
		if err != nil && strings.Contains(err.Error(), "hunter2") {
			t.Errorf("the error holds the password: %v", err)
		}
	}
}

// BenchmarkPublish measures the time of Publish with one listener.
func BenchmarkPublish(b *testing.B) {
	srv := testserver.RequireRedis(b)
	for name, retain := range map[string]events.Retention{"": {}, "kept": {Age: time.Minute}} {
		b.Run(name, func(b *testing.B) {
			bus := open(b, options(srv, srv.Addr()), testserver.Namespace(), func(c *redisevents.Config) { c.Retain = retain })
			subscribe(b, bus, events.Filter{})
			b.ReportAllocs()
			for b.Loop() {
				publish(b, bus, 1)
			}
		})
	}
}

package redisresults_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/internal/testwait"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/resultstore/redisresults"
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

// open makes a store in namespace ns and closes it at the end of the test.
func open(t testing.TB, o *redis.UniversalOptions, ns string, change ...func(*redisresults.Config)) *redisresults.Store {
	t.Helper()
	c := redisresults.Config{Redis: o, Namespace: ns, Logger: quiet()}
	for _, f := range change {
		f(&c)
	}
	s, err := redisresults.New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(testwait.Long(t)); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return s
}

func notify(t testing.TB, s resultstore.Notifier, node string) resultstore.Notifications {
	t.Helper()
	n, err := s.Notify(testwait.Long(t), node)
	if err != nil {
		t.Fatalf("Notify: %v", err)
	}
	return n
}

// done returns a terminal record of task i as a consumer saves it.
func done(node string, i int) resultstore.Record {
	return resultstore.Record{
		ID: task.ID(fmt.Sprintf("task-%d", i)), Name: "add", State: task.StateSucceeded, Deliveries: 1,
		ContentType: "application/json", Result: []byte("3"), NodeID: "consumer", ReplyTo: node,
		StartedAt: time.UnixMilli(1_700_000_000_000).UTC(), FinishedAt: time.UnixMilli(1_700_000_000_005).UTC(),
	}
}

func save(t testing.TB, s *redisresults.Store, r resultstore.Record) {
	t.Helper()
	if err := s.Save(testwait.Long(t), r); err != nil {
		t.Fatalf("Save: %v", err)
	}
}

func wantRecord(t testing.TB, s *redisresults.Store, want resultstore.Record) {
	t.Helper()
	got, err := s.Load(testwait.Long(t), want.ID)
	if err != nil {
		t.Fatalf("Load: %v", err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("record loaded (-want +got):\n%s", diff)
	}
}

func receive(t testing.TB, n resultstore.Notifications, want resultstore.Record) {
	t.Helper()
	got, err := n.Receive(testwait.Long(t))
	if err != nil {
		t.Fatalf("Receive: %v", err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("record received (-want +got):\n%s", diff)
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

// pause waits 10 ms between two checks of a loop, or until the test ends.
func pause(t testing.TB) {
	select {
	case <-time.After(10 * time.Millisecond):
	case <-t.Context().Done():
	}
}

func TestNewNamesEveryProblem(t *testing.T) {
	_, err := redisresults.New(redisresults.Config{Namespace: "a.b", TTL: -1, MaxResult: -1, MaxNotice: -1, Buffer: -1})
	if err == nil {
		t.Fatal("New took a configuration without a single good field")
	}
	for _, word := range []string{"redis: ", "Namespace", "TTL", "MaxResult", "MaxNotice", "Buffer"} {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("the error does not name %s: %v", word, err)
		}
	}
}

// The layout is public: other programs read these keys and listen on these channels.
func TestLayout(t *testing.T) {
	srv := testserver.RequireRedis(t)
	ns := testserver.Namespace()
	s := open(t, options(srv, srv.Addr()), ns, func(c *redisresults.Config) { c.TTL = time.Minute })
	r := done("node", 1)
	r.Generation, r.Deliveries, r.State = 2, 3, task.StateRetrying
	save(t, s, r)
	value := do(t, srv, "GET", "swj:res:{"+ns+".task-1}").(string)
	if want := "2.3 retrying open\n"; !strings.HasPrefix(value, want) {
		t.Errorf("the value begins with %.40q, want %q", value, want)
	}
	if ms := do(t, srv, "PTTL", "swj:res:{"+ns+".task-1}").(int64); ms <= 30_000 || ms > 60_000 {
		t.Errorf("the record expires in %d ms, want a minute", ms)
	}
	r.State = task.StateFailed
	r.TTL = time.Hour
	save(t, s, r)
	value = do(t, srv, "GET", "swj:res:{"+ns+".task-1}").(string)
	if want := "2.3 failed final\n\xde"; !strings.HasPrefix(value, want) {
		t.Errorf("the value begins with %.40q, want %q", value, want)
	}
	ms := do(t, srv, "PTTL", "swj:res:{"+ns+".task-1}").(int64)
	if ms <= 3_000_000 || ms > 3_600_000 {
		t.Errorf("the record expires in %d ms, want an hour", ms)
	}
	r.TTL = 2 * time.Hour
	save(t, s, r)
	if again := do(t, srv, "PTTL", "swj:res:{"+ns+".task-1}").(int64); again > ms {
		t.Errorf("the same final record again set its time from %d to %d ms", ms, again)
	}
}

// A record larger than MaxNotice is notified by its id, and Receive returns it like any other.
func TestLargeRecordsAreLoaded(t *testing.T) {
	srv := testserver.RequireRedis(t)
	s := open(t, options(srv, srv.Addr()), testserver.Namespace(), func(c *redisresults.Config) { c.MaxNotice = 500 })
	n := notify(t, s, "node")
	for i, size := range []int{1, 499, 500, 5000} {
		r := done("node", i)
		r.Result = []byte(strings.Repeat("x", size))
		save(t, s, r)
		receive(t, n, r)
	}
	gone := done("node", 10)
	gone.Result = []byte(strings.Repeat("x", 5000))
	save(t, s, gone)
	if err := s.Delete(testwait.Long(t), gone.ID); err != nil {
		t.Fatal(err)
	}
	save(t, s, done("node", 11))
	receive(t, n, done("node", 11)) // Receive skips a record that was deleted
}

// If a large record cannot be loaded now, the next Receive still returns it.
func TestLargeRecordWhileTheServerIsAway(t *testing.T) {
	srv := testserver.RequireRedis(t)
	proxy := testserver.NewProxy(t, srv.Addr())
	ns := testserver.Namespace()
	n := notify(t, open(t, options(srv, proxy.Addr()), ns), "node")
	consumer := open(t, options(srv, srv.Addr()), ns)
	r := done("node", 1)
	r.Result = []byte(strings.Repeat("x", 1<<20))
	save(t, consumer, r)
	save(t, consumer, done("node", 2))
	for ctx := testwait.Long(t); redisresults.Waiting(n) < 2; pause(t) {
		if ctx.Err() != nil {
			t.Fatal("the notifications did not come")
		}
	}
	proxy.Cut()
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := n.Receive(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("Receive of a large record without a server: %v, want ctx's error", err)
	}
	proxy.Heal()
	receive(t, n, r)
	receive(t, n, done("node", 2))
}

func TestSlowStreamKeepsTheNewest(t *testing.T) {
	srv := testserver.RequireRedis(t)
	s := open(t, options(srv, srv.Addr()), testserver.Namespace(), func(c *redisresults.Config) { c.Buffer = 5 })
	n, marker := notify(t, s, "node"), notify(t, s, "marker")
	for i := range 20 {
		save(t, s, done("node", i))
	}
	save(t, s, done("marker", 20))
	receive(t, marker, done("marker", 20))
	first, err := n.Receive(testwait.Long(t))
	if err != nil {
		t.Fatal(err)
	}
	if first.ID == done("node", 0).ID {
		t.Errorf("the stream of 5 still holds the first of 20 records")
	}
}

// No stream can be opened for an invalid node name. Save still stores a record with such a ReplyTo.
func TestNamesThatAreNoNode(t *testing.T) {
	srv := testserver.RequireRedis(t)
	s := open(t, options(srv, srv.Addr()), testserver.Namespace())
	for i, node := range []string{"../work", "a b", "ns:x*", strings.Repeat("n", 129), "é"} {
		if _, err := s.Notify(testwait.Long(t), node); !errors.Is(err, resultstore.ErrMalformed) {
			t.Errorf("Notify for node %q: %v, want ErrMalformed", node, err)
		}
		save(t, s, done(node, i))
		wantRecord(t, s, done(node, i))
	}
}

// A foreign value under the key of a record is neither returned as a record nor overwritten.
func TestStrangeValues(t *testing.T) {
	srv := testserver.RequireRedis(t)
	ns := testserver.Namespace()
	s := open(t, options(srv, srv.Addr()), ns)
	good := do(t, srv, "GET", func() string {
		save(t, s, done("", 1))
		return "swj:res:{" + ns + ".task-1}"
	}()).(string)
	for i, value := range []string{"x", "0.1 succeeded final", "0.1 succeeded final\n", "0.1 succeeded final\n\xdd\x01\x00\x00\x00", good} {
		r := done("", 100+i)
		do(t, srv, "SET", "swj:res:{"+ns+"."+string(r.ID)+"}", value)
		if _, err := s.Load(testwait.Long(t), r.ID); !errors.Is(err, resultstore.ErrMalformed) {
			t.Errorf("Load of %.40q: %v, want ErrMalformed", value, err)
		}
	}
	do(t, srv, "SET", "swj:res:{"+ns+".task-2}", "x")
	do(t, srv, "RPUSH", "swj:res:{"+ns+".task-3}", "x")
	do(t, srv, "SET", "swj:res:{"+ns+".task-4}", "")
	for i := 2; i <= 4; i++ {
		if err := s.Save(testwait.Long(t), done("", i)); !errors.Is(err, resultstore.ErrMalformed) {
			t.Errorf("Save over what is no record: %v, want ErrMalformed", err)
		}
		if _, err := s.Load(testwait.Long(t), done("", i).ID); !errors.Is(err, resultstore.ErrMalformed) {
			t.Errorf("Load of what is no record: %v, want ErrMalformed", err)
		}
		if err := s.Delete(testwait.Long(t), done("", i).ID); err != nil {
			t.Errorf("Delete: %v", err)
		}
		save(t, s, done("", i))
	}
}

// A foreign message on the channel causes one error, and the stream continues.
func TestStrangeMessagesDoNotEndTheStream(t *testing.T) {
	srv := testserver.RequireRedis(t)
	ns := testserver.Namespace()
	s := open(t, options(srv, srv.Addr()), ns)
	n := notify(t, s, "node")
	save(t, s, done("other", 5))
	other := do(t, srv, "GET", "swj:res:{"+ns+".task-5}").(string)
	for _, body := range []string{"", "no record", "=", "=a b", "0.1 succeeded final\n\xdd\x01\x00\x00\x00", other, "=task-5"} {
		do(t, srv, "PUBLISH", "swj:reply:"+ns+":node", body)
		if _, err := n.Receive(testwait.Long(t)); !errors.Is(err, resultstore.ErrMalformed) {
			t.Errorf("Receive of %.20q: %v, want ErrMalformed", body, err)
		}
	}
	save(t, s, done("node", 1))
	receive(t, n, done("node", 1))
}

// The store works on after the server has lost its scripts.
func TestScriptFlush(t *testing.T) {
	srv := testserver.RequireRedis(t)
	s := open(t, options(srv, srv.Addr()), testserver.Namespace())
	for i := range 3 {
		save(t, s, done("", i))
		do(t, srv, "SCRIPT", "FLUSH")
	}
	errs := make(chan error, 300)
	for i := range cap(errs) {
		go func() { errs <- s.Save(testwait.Long(t), done("", 10+i)) }()
	}
	do(t, srv, "SCRIPT", "FLUSH")
	for range cap(errs) {
		if err := <-errs; err != nil {
			t.Fatalf("Save beside SCRIPT FLUSH: %v", err)
		}
	}
}

// A server that is out of memory refuses records: Save returns within ctx. Stored records can be
// read, and Save works again once memory is free.
func TestOutOfMemory(t *testing.T) {
	t.Parallel()
	srv := testserver.OwnRedis(t, testserver.RedisConfig{})
	s := open(t, options(srv, srv.Addr()), "oom")
	n := notify(t, s, "node")
	save(t, s, done("node", 1))
	receive(t, n, done("node", 1))
	do(t, srv, "CONFIG", "SET", "maxmemory", "1")
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	if err := s.Save(ctx, done("node", 2)); !errors.Is(err, resultstore.ErrUnavailable) || !strings.Contains(err.Error(), "OOM") {
		t.Errorf("Save without memory: %v, want ErrUnavailable that says why", err)
	}
	wantRecord(t, s, done("node", 1))
	do(t, srv, "CONFIG", "SET", "maxmemory", "0")
	save(t, s, done("node", 3))
	receive(t, n, done("node", 3))
}

func TestWrongPasswordIsToldAtOnceAndNotShown(t *testing.T) {
	srv := testserver.RequireRedis(t)
	o := options(srv, srv.Addr())
	o.Password = "hunter2"
	s := open(t, o, testserver.Namespace())
	_, err := s.Notify(testwait.Long(t), "node")
	_, loadErr := s.Load(testwait.Long(t), "task-1")
	saveErr := s.Save(testwait.Long(t), done("node", 1))
	deleteErr := s.Delete(testwait.Long(t), "task-1")
	for _, err := range []error{err, loadErr, saveErr, deleteErr} {
		if !errors.Is(err, resultstore.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("with a wrong password: %v, want ErrUnavailable before ctx ends", err)
		}
		if err != nil && strings.Contains(err.Error(), "hunter2") {
			t.Errorf("the error holds the password: %v", err)
		}
	}
}

// Close of a stream ends its subscription at the server.
func TestCloseEndsTheSubscription(t *testing.T) {
	srv := testserver.RequireRedis(t)
	ns := testserver.Namespace()
	s := open(t, options(srv, srv.Addr()), ns)
	n := notify(t, s, "node")
	subscribers := func() int64 {
		return do(t, srv, "PUBSUB", "NUMSUB", "swj:reply:"+ns+":node").([]any)[1].(int64)
	}
	if subscribers() != 1 {
		t.Fatalf("%d subscribers, want 1", subscribers())
	}
	if err := n.Close(testwait.Long(t)); err != nil {
		t.Fatal(err)
	}
	for ctx := testwait.Long(t); subscribers() > 0; pause(t) {
		if ctx.Err() != nil {
			t.Fatalf("%d subscribers are left of a closed stream", subscribers())
		}
	}
}

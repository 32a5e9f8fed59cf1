package redisbroker_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/broker/redisbroker"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/internal/testwait"
)

// TestScriptFlush shows that scripts are sent again to a server that has dropped them, whatever the
// next call is.
func TestScriptFlush(t *testing.T) {
	t.Parallel()
	srv := testserver.OwnRedis(t, testserver.RedisConfig{})
	b := connect(t, redisbroker.Config{Redis: options(srv)})
	q := declared(t, b, "q")
	flush := func() { do(t, srv, "SCRIPT", "FLUSH", "SYNC") }
	s := subscribe(t, b, q, 1)
	for _, m := range messages("m", 20) {
		flush()
		publish(t, b, q, m)
		d := receive(t, s)
		first(t, d, m.ID)
		flush()
		if err := broker.AckSync(testwait.Long(t), d); err != nil {
			t.Errorf("AckSync: %v", err)
		}
	}
	if st := stats(t, b, q); st != (broker.Stats{}) {
		t.Errorf("at the end: %+v", st)
	}
}

// TestOutOfMemory shows that a server without memory accepts no messages, but delivers and removes
// its messages.
func TestOutOfMemory(t *testing.T) {
	t.Parallel()
	srv := testserver.OwnRedis(t, testserver.RedisConfig{Conf: "maxmemory 6mb\nmaxmemory-policy noeviction"})
	b := connect(t, redisbroker.Config{Redis: options(srv)})
	q := declared(t, b, "q")
	var mu sync.Mutex
	var states []broker.ConnState
	stop := b.Watch(func(s broker.ConnState, _ error) {
		mu.Lock()
		defer mu.Unlock()
		states = append(states, s)
	})
	defer stop()
	told := func(last bool, want broker.ConnState) func() bool {
		return func() bool {
			mu.Lock()
			defer mu.Unlock()
			at := slices.Index(states, want)
			return at >= 0 && (!last || states[len(states)-1] == want)
		}
	}
	n := 0
	for {
		m := message(fmt.Sprint(n))
		m.Body = bytes.Repeat([]byte("b"), 100_000)
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		err := b.Publish(ctx, q, m)
		cancel()
		if err != nil {
			if !errors.Is(err, broker.ErrBlocked) {
				t.Fatalf("Publish to a full server: %v, want ErrBlocked", err)
			}
			break
		}
		if n++; n > 1000 {
			t.Fatal("the server takes all")
		}
	}
	testwait.Until(t, "Blocked", told(false, broker.Blocked))
	waiting := make(chan error, 1)
	go func() { waiting <- b.Publish(testwait.Long(t), q, message("waits")) }()
	s := subscribe(t, b, q, 4)
	for i, left := 0, n+1; left > 0; i++ {
		d := receive(t, s)
		first(t, d, d.Message().ID)
		var err error
		switch {
		case i%3 == 0:
			err = broker.AckSync(testwait.Long(t), d)
		case i%3 == 1 || d.Message().Generation > 0:
			err = d.Ack(testwait.Long(t))
		default:
			err = b.Retry(testwait.Long(t), d, broker.Outgoing{Queue: q, Message: retried(d)})
			left++
		}
		if err != nil {
			t.Fatalf("settling %s on a full server: %v", d.Message().ID, err)
		}
		left--
	}
	if err := <-waiting; err != nil {
		t.Errorf("Publish that waited for memory: %v", err)
	}
	testwait.Until(t, "Connected", told(true, broker.Connected))
}

// retried returns the successor of a delivery, with a body that needs no memory.
func retried(d broker.Delivery) *broker.Message {
	return &broker.Message{ID: d.Message().ID, Generation: d.Message().Generation + 1, Priority: 100}
}

// TestReadOnly shows that calls wait for a server that became a replica, until the failover has
// ended.
func TestReadOnly(t *testing.T) {
	t.Parallel()
	pair := testserver.OwnRedisReplica(t, testserver.RedisConfig{})
	relay := testserver.NewRelay(t, pair.Primary.Addr())
	o := options(pair.Primary)
	o.Addrs = []string{relay.Addr()}
	b := connect(t, redisbroker.Config{Redis: o})
	q := declared(t, b, "q")
	publish(t, b, q, message("before"))
	s := subscribe(t, b, q, 1)
	d := receive(t, s)
	if err := pair.Sync(testwait.Long(t)); err != nil {
		t.Fatal(err)
	}
	relay.Redirect(pair.Replica.Addr())
	// On a busy machine the time may end during an attempt, whose outcome is then unknown.
	err := b.Publish(testwait.Brief(t), q, message("refused"))
	if !errors.Is(err, broker.ErrUnavailable) && !errors.Is(err, broker.ErrIndeterminate) {
		t.Errorf("Publish to a replica: %v, want ErrUnavailable", err)
	}
	unknown := errors.Is(err, broker.ErrIndeterminate)
	waiting := make(chan error, 1)
	go func() { waiting <- b.Publish(testwait.Long(t), q, message("waits")) }()
	if err := pair.Promote(testwait.Long(t)); err != nil {
		t.Fatal(err)
	}
	if err := <-waiting; err != nil {
		t.Errorf("Publish that waited for a primary: %v", err)
	}
	if err := broker.AckSync(testwait.Long(t), d); err != nil {
		t.Errorf("AckSync of a delivery from before the failover: %v", err)
	}
	d = receive(t, s)
	if unknown && d.Message().ID == "refused" {
		ack(t, d)
		d = receive(t, s)
	}
	first(t, d, "waits")
	ack(t, d)
}

// TestNotReplicated shows that with WaitReplicas no message is confirmed that a failover could
// undo.
func TestNotReplicated(t *testing.T) {
	t.Parallel()
	pair := testserver.OwnRedisReplica(t, testserver.RedisConfig{})
	// Long enough for a replica on a busy machine, and longer than the client waits for other answers.
	// The calls that time out do so at the same time.
	b := connect(t, redisbroker.Config{Redis: options(pair.Primary), WaitReplicas: 1, WaitTimeout: 5 * time.Second})
	q := "q"
	testwait.UntilNil(t, "the replica, which has just begun, has the queue", func() error {
		return b.Declare(testwait.Long(t), broker.Queue{Name: q})
	})
	publishAll(t, b, q, messages("m", 1200)...)
	s := subscribe(t, b, q, 3)
	d1, d2, d3 := receive(t, s), receive(t, s), receive(t, s)
	if err := broker.AckSync(testwait.Long(t), d1); err != nil {
		t.Errorf("AckSync: %v", err)
	}
	if err := pair.Cut(testwait.Long(t)); err != nil {
		t.Fatal(err)
	}
	var calls sync.WaitGroup
	for what, call := range map[string]func() error{
		"Publish":    func() error { return b.Publish(testwait.Long(t), q, message("a")) },
		"AckSync":    func() error { return broker.AckSync(testwait.Long(t), d2) },
		"DeadLetter": func() error { return d3.DeadLetter(testwait.Long(t), broker.Dead{Reason: "why"}) },
		"Declare":    func() error { return b.Declare(testwait.Long(t), broker.Queue{Name: "r"}) },
	} {
		calls.Go(func() {
			if err := call(); !errors.Is(err, redisbroker.ErrNotReplicated) || !errors.Is(err, broker.ErrIndeterminate) {
				t.Errorf("%s without a replica: %v, want ErrNotReplicated and ErrIndeterminate", what, err)
			}
		})
	}
	calls.Go(func() {
		err := b.PublishBatch(testwait.Long(t), []broker.Outgoing{{Queue: q, Message: message("b")}})
		if be, ok := errors.AsType[*broker.BatchError](err); !ok || !errors.Is(be.Errs[0], redisbroker.ErrNotReplicated) {
			t.Errorf("PublishBatch without a replica: %v", err)
		}
	})
	calls.Wait()
	if st := stats(t, b, q); st.Dead != 1 {
		t.Errorf("the server has done it all the same: %+v", st)
	}
}

// TestSentinel shows that publishing and consuming continue after a failover, and that with
// WaitReplicas it loses no confirmed message.
func TestSentinel(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: no failover of a sentinel")
	}
	t.Parallel()
	srv := testserver.OwnRedisSentinel(t, testserver.RedisConfig{})
	b := connect(t, redisbroker.Config{
		Redis: &redis.UniversalOptions{
			Addrs: []string{srv.Sentinel.Addr()}, MasterName: srv.MasterName(),
			Username: srv.Primary.User(), Password: srv.Primary.Password(),
			SentinelUsername: srv.Sentinel.User(), SentinelPassword: srv.Sentinel.Password(),
		},
		WaitReplicas: 1, WaitTimeout: 300 * time.Millisecond, Lease: 2 * time.Second,
	})
	q := "q"
	testwait.Until(t, "that the replica, which has just begun, has the queue", func() bool {
		return b.Declare(testwait.Long(t), broker.Queue{Name: q}) == nil
	})
	// After the loss of the primary no replica confirms: these results are known to be uncertain.
	confirmed := make(map[string]bool)
	for _, m := range messages("m", 300) {
		if m.ID == "m-000150" {
			srv.Primary.Kill()
			if err := srv.Failover(testwait.Long(t)); err != nil {
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
		err := b.Publish(ctx, q, m)
		cancel()
		switch {
		case err == nil:
			confirmed[m.ID] = true
		case !errors.Is(err, broker.ErrIndeterminate) && !errors.Is(err, broker.ErrUnavailable):
			t.Fatalf("Publish(%s): %v", m.ID, err)
		}
		if m.ID == "m-000160" { // each further message would wait for a replica that no longer exists
			break
		}
	}
	if len(confirmed) < 150 {
		t.Errorf("%d messages were confirmed, want those from before the failover", len(confirmed))
	}
	s := subscribe(t, b, q, 50)
	for len(confirmed) > 0 {
		d := receive(t, s)
		delete(confirmed, d.Message().ID)
		ack(t, d)
	}
}

// TestPause shows that a server that hangs blocks no call for longer than its ctx, and that all
// calls work when it runs again.
func TestPause(t *testing.T) {
	t.Parallel()
	srv := testserver.OwnRedis(t, testserver.RedisConfig{})
	b := connect(t, redisbroker.Config{Redis: options(srv)})
	q := declared(t, b, "q")
	publish(t, b, q, message("a"), message("b"))
	s := subscribe(t, b, q, 2)
	d, d2 := receive(t, s), receive(t, s)
	srv.Pause()
	begun := time.Now()
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			err := b.Publish(testwait.Brief(t), q, message(fmt.Sprintf("p%d", i)))
			if !errors.Is(err, broker.ErrIndeterminate) && !errors.Is(err, broker.ErrUnavailable) {
				t.Errorf("Publish to a server that hangs: %v", err)
			}
		})
	}
	wg.Go(func() {
		if err := broker.AckSync(testwait.Brief(t), d); !errors.Is(err, broker.ErrIndeterminate) && !errors.Is(err, broker.ErrUnavailable) {
			t.Errorf("AckSync to a server that hangs: %v", err)
		}
	})
	wg.Go(func() {
		if err := d2.Release(testwait.Brief(t), 0); !errors.Is(err, broker.ErrIndeterminate) && !errors.Is(err, broker.ErrUnavailable) {
			t.Errorf("Release to a server that hangs: %v", err)
		}
	})
	wg.Wait()
	if took := time.Since(begun); took > 20*time.Second {
		t.Errorf("calls with a ctx of 300ms took %v", took)
	}
	srv.Resume()
	if err := broker.AckSync(testwait.Long(t), d); err != nil && !errors.Is(err, broker.ErrSettled) {
		t.Errorf("AckSync once more: %v", err)
	}
	if err := d2.Release(testwait.Long(t), 0); err != nil && !errors.Is(err, broker.ErrSettled) {
		t.Errorf("Release once more: %v", err)
	}
	publish(t, b, q, message("last"))
	testwait.Until(t, "the message that was published last", func() bool {
		next := receive(t, s)
		ack(t, next)
		return next.Message().ID == "last"
	})
}

// TestBlackHole shows that a consumer whose network drops all data loses its messages to another
// when its lease ends. Its Lost channel is closed.
func TestBlackHole(t *testing.T) {
	t.Parallel()
	srv := testserver.RequireRedis(t)
	ns := testserver.Namespace()
	for name, fault := range map[string]func(p *testserver.Proxy){
		"both ways": func(p *testserver.Proxy) { p.BlackHole(true, true) },
		"answers":   func(p *testserver.Proxy) { p.BlackHole(false, true) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			proxy := testserver.NewProxy(t, srv.Addr())
			o := options(srv)
			o.Addrs, o.ReadTimeout = []string{proxy.Addr()}, time.Second
			q := strings.ReplaceAll(name, " ", "-")
			a := connect(t, redisbroker.Config{Redis: o, Namespace: ns, Lease: 2 * time.Second})
			b := connect(t, redisbroker.Config{Namespace: ns})
			declared(t, a, q)
			publish(t, b, q, messages("m", 3)...)
			s := subscribe(t, a, q, 3)
			ds := []broker.Delivery{receive(t, s), receive(t, s), receive(t, s)}
			rival := subscribe(t, b, q, 3)
			fault(proxy)
			for _, d := range ds {
				testwait.Closed(t, "Lost", d.Lost())
			}
			for range ds {
				d := receive(t, rival)
				if n, _ := d.Deliveries(); n != 2 {
					t.Errorf("hand-out %d of %s, want the second", n, d.Message().ID)
				}
				if err := broker.AckSync(testwait.Long(t), d); err != nil {
					t.Errorf("AckSync: %v", err)
				}
			}
			proxy.Heal()
			for _, d := range ds {
				if err := d.Release(testwait.Long(t), 0); !errors.Is(err, broker.ErrLeaseLost) {
					t.Errorf("Release of a delivery that was lost: %v", err)
				}
			}
			if err := rival.Close(testwait.Long(t)); err != nil {
				t.Errorf("Close: %v", err)
			}
			publish(t, b, q, message("after"))
			d := receive(t, s)
			if d.Message().ID != "after" {
				t.Errorf("received %s, want after", d.Message().ID)
			}
			ack(t, d)
		})
	}
}

// TestShortCut shows that a cut shorter than the lease causes no second delivery.
func TestShortCut(t *testing.T) {
	t.Parallel()
	b, l := overLine(t, redisbroker.Config{}, testserver.RequireRedis(t))
	q := declared(t, b, "q")
	publish(t, b, q, messages("m", 20)...)
	s := subscribe(t, b, q, 4)
	seen := make(map[string]bool)
	for len(seen) < 20 {
		d := receive(t, s)
		if n, _ := d.Deliveries(); n != 1 || seen[d.Message().ID] {
			t.Errorf("%s is handed out again, hand-out %d", d.Message().ID, n)
		}
		seen[d.Message().ID] = true
		if len(seen)%3 == 0 {
			l.sever()
		}
		ack(t, d)
	}
	nothing(t, s)
	testwait.Until(t, "that nothing is left", func() bool { return stats(t, b, q) == broker.Stats{} })
}

// TestDeadConsumer shows that the messages of a consumer that died go to others, before waiting
// messages, even if they are many. The consumer's records are removed.
func TestDeadConsumer(t *testing.T) {
	t.Parallel()
	srv := testserver.RequireRedis(t)
	ns := testserver.Namespace()
	dead, l := overLine(t, redisbroker.Config{Namespace: ns, Lease: time.Second}, srv)
	q := declared(t, dead, "q")
	publishAll(t, dead, q, messages("a", 700)...)
	s := subscribe(t, dead, q, 0)
	for range 600 {
		receive(t, s)
	}
	b := connect(t, redisbroker.Config{Namespace: ns})
	publishAll(t, b, q, messages("b", 100)...)
	l.set(true)
	alive := subscribe(t, b, q, 10)
	again := 0
	for range 800 {
		d := receive(t, alive)
		if n, _ := d.Deliveries(); n > 1 {
			again++
		}
		ack(t, d)
	}
	nothing(t, alive)
	if again < 600 {
		t.Errorf("%d messages were handed out again, 600 were in the dead consumer's hands", again)
	}
	key := "swj:{" + ns + "." + q + "}:"
	testwait.Until(t, "that nothing of the dead consumer is left", func() bool {
		return stats(t, b, q) == broker.Stats{} && do(t, srv, "ZCARD", key+"o") == int64(1) && do(t, srv, "EXISTS", key+"n", key+"t") == int64(0)
	})
	l.set(false)
}

// TestRestartWithoutData shows that a server that restarts empty is used like a new one.
func TestRestartWithoutData(t *testing.T) {
	t.Parallel()
	srv := testserver.OwnRedis(t, testserver.RedisConfig{AOF: "off"})
	b := connect(t, redisbroker.Config{Redis: options(srv)})
	q := declared(t, b, "q")
	publish(t, b, q, message("a"), message("gone"))
	s := subscribe(t, b, q, 1)
	d := receive(t, s)
	srv.Kill()
	if err := srv.Restart(testwait.Long(t)); err != nil {
		t.Fatal(err)
	}
	testwait.Closed(t, "Lost", d.Lost())
	testwait.Until(t, "that the subscription has made its queue anew", func() bool {
		_, err := b.Stats(testwait.Long(t), q)
		return err == nil
	})
	publish(t, b, q, message("new"))
	d = receive(t, s)
	first(t, d, "new")
	ack(t, d)
}

// TestAckSyncAnswerLost shows that the outcome of an acknowledgement without an answer stays
// unknown when the lease ends. The server may have executed it, and then no consumer has the
// message.
func TestAckSyncAnswerLost(t *testing.T) {
	t.Parallel()
	srv := testserver.RequireRedis(t)
	proxy := testserver.NewProxy(t, srv.Addr())
	ns := testserver.Namespace()
	direct := connect(t, redisbroker.Config{Namespace: ns})
	through := options(srv)
	through.Addrs = []string{proxy.Addr()}
	b := connect(t, redisbroker.Config{Redis: through, Namespace: ns, Lease: time.Second})
	q := declared(t, b, "q")
	publish(t, b, q, messages("m", 2)...)
	s := subscribe(t, b, q, 1)
	// it leaves an open connection for the next one
	if err := broker.AckSync(testwait.Long(t), receive(t, s)); err != nil {
		t.Fatal(err)
	}
	d := receive(t, s)
	proxy.BlackHole(false, true)
	outcome := make(chan error, 1)
	go func() { outcome <- broker.AckSync(testwait.Long(t), d) }()
	testwait.Until(t, "the acknowledgement to be executed", func() bool { return stats(t, direct, q) == broker.Stats{} })
	proxy.Cut()
	defer proxy.Heal()
	if err := <-outcome; !errors.Is(err, broker.ErrIndeterminate) {
		t.Errorf("AckSync whose answer was lost, and then the lease: %v; wanted an unknown outcome", err)
	}
}

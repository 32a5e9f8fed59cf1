package redisconn_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/redisconn"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/internal/testwait"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction(testserver.Reaper),
		// The test's proxy may leave these goroutines when a connection is cut while a fault begins.
		goleak.IgnoreAnyFunction(testserver.ProxyPipe), goleak.IgnoreAnyFunction(testserver.ProxyRead))
}

// soon limits operations that wait for no server. patient sets timeouts far above it.
const soon = 20 * time.Second

func patient(o *redis.UniversalOptions) *redis.UniversalOptions {
	o.DialTimeout, o.ReadTimeout, o.WriteTimeout = 2*time.Minute, 2*time.Minute, 2*time.Minute
	return o
}

func options(srv *testserver.Redis, addr string) *redis.UniversalOptions {
	return &redis.UniversalOptions{Addrs: []string{addr}, Username: srv.User(), Password: srv.Password()}
}

func connect(t testing.TB, o *redis.UniversalOptions) *redisconn.Conn {
	t.Helper()
	quick := *o
	quick.MaxRetryBackoff = 200 * time.Millisecond
	c, err := redisconn.New(redisconn.Config{Redis: &quick, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(testwait.Long(t)); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return c
}

func do(t testing.TB, srv *testserver.Redis, args ...any) any {
	t.Helper()
	v, err := srv.Do(testwait.Long(t), args...)
	if err != nil {
		t.Fatalf("%v: %v", args[0], err)
	}
	return v
}

// await runs fn and fails if it has not returned within soon.
func await(t testing.TB, what string, fn func() error) error {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- fn() }()
	select {
	case err := <-done:
		return err
	case <-time.After(soon):
		t.Fatalf("%s has not returned after %v", what, soon)
		return nil
	}
}

// A call to a silent server returns when its ctx ends, with ErrIndeterminate.
func TestCancelWhileTheServerIsSilent(t *testing.T) {
	srv := testserver.RequireRedis(t)
	proxy := testserver.NewProxy(t, srv.Addr())
	c := connect(t, patient(options(srv, proxy.Addr())))
	key := testserver.Namespace()
	script := redisconn.NewScript("return redis.call('INCR', KEYS[1])")
	if _, err := c.Eval(testwait.Long(t), script, []string{key}); err != nil {
		t.Fatal(err)
	}
	for name, call := range map[string]func(ctx context.Context) error{
		"Do":       func(ctx context.Context) error { _, err := c.Do(ctx, "INCR", key); return err },
		"Eval":     func(ctx context.Context) error { _, err := c.Eval(ctx, script, []string{key}); return err },
		"EvalOnce": func(ctx context.Context) error { _, err := c.EvalOnce(ctx, script, []string{key}); return err },
		"EvalWait": func(ctx context.Context) error {
			_, _, err := c.EvalWait(ctx, 0, time.Second, script, []string{key})
			return err
		},
		"Call": func(ctx context.Context) error {
			_, err := c.Call(ctx, func(ctx context.Context) (any, error) {
				node, err := c.Node(ctx, key)
				if err != nil {
					return nil, err
				}
				return node.Incr(ctx, key).Result()
			})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			limit := testwait.Long(t) // a connection that the last case cut may fail one more call
			for err := call(limit); err != nil; err = call(limit) {
				if !errors.Is(err, redisconn.ErrIndeterminate) && !errors.Is(err, redisconn.ErrUnavailable) || limit.Err() != nil {
					t.Fatal(err)
				}
			}
			before := do(t, srv, "GET", key)
			proxy.BlackHole(false, true)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			go func() {
				defer cancel()
				for t.Context().Err() == nil {
					if v, err := srv.Do(t.Context(), "GET", key); err != nil || v != before {
						return
					}
				}
			}()
			err := await(t, name, func() error { return call(ctx) })
			if !errors.Is(err, redisconn.ErrIndeterminate) || !errors.Is(err, context.Canceled) {
				t.Errorf("%v, want ErrIndeterminate because of ctx: the server has executed it", err)
			}
			proxy.Heal()
		})
	}
}

// A call that was abandoned while its connection was being made is never sent.
func TestCancelWhileConnecting(t *testing.T) {
	srv := testserver.OwnRedis(t, testserver.RedisConfig{})
	c := connect(t, patient(options(srv, srv.Addr())))
	srv.Pause()
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(300*time.Millisecond, cancel)
	err := await(t, "Do", func() error { _, err := c.Do(ctx, "SET", "late", "1"); return err })
	if class := redisconn.Class(err); !errors.Is(class, redisconn.ErrIndeterminate) && !errors.Is(class, redisconn.ErrUnavailable) {
		t.Errorf("Do given up while it connects: %v", err)
	}
	srv.Resume()
	for range 20 { // the handshake of the first connection is answered before these
		if _, err := c.Do(testwait.Long(t), "PING"); err != nil {
			t.Fatal(err)
		}
	}
	if v, err := c.Do(testwait.Long(t), "GET", "late"); !errors.Is(err, redis.Nil) {
		t.Errorf("what was given up before it was sent has been executed: GET is %v, %v", v, err)
	}
}

// Close does not wait for a silent server while a listener or a call connects to it.
func TestCloseWhileConnecting(t *testing.T) {
	srv := testserver.OwnRedis(t, testserver.RedisConfig{})
	c := connect(t, patient(options(srv, srv.Addr())))
	srv.Pause()
	defer srv.Resume()
	l := c.Listen(redisconn.ListenerConfig{})
	l.Add("news")
	called := make(chan error, 2)
	go func() { called <- l.Wait(testwait.Long(t), "news") }()
	go func() { _, err := c.Do(testwait.Long(t), "PING"); called <- err }()
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if err := l.Wait(ctx, "news"); err == nil {
		t.Fatal("a paused server has confirmed")
	}
	if err := await(t, "Close", func() error { return c.Close(testwait.Long(t)) }); err != nil {
		t.Errorf("Close: %v", err)
	}
	for range 2 {
		if err := await(t, "a call", func() error { return <-called }); !errors.Is(err, redisconn.ErrClosed) {
			t.Errorf("a call that Close found waiting: %v, want ErrClosed", err)
		}
	}
}

// A listener that lost its connection can be closed at once while a new connection is not answered.
func TestListenerCloseWhileTheServerIsSilent(t *testing.T) {
	srv := testserver.OwnRedis(t, testserver.RedisConfig{})
	proxy := testserver.NewProxy(t, srv.Addr())
	c := connect(t, patient(options(srv, proxy.Addr())))
	lost := make(chan error, 1)
	l := c.Listen(redisconn.ListenerConfig{Lost: func(err error) { lost <- err }})
	if err := l.Subscribe(testwait.Long(t), "news"); err != nil {
		t.Fatal(err)
	}
	srv.Pause()
	defer srv.Resume()
	proxy.Sever()
	if err := await(t, "Lost", func() error { return <-lost }); err == nil {
		t.Error("a connection was lost without a reason")
	}
	_ = await(t, "Add, Remove and Close", func() error {
		l.Add("more")
		l.Remove("more")
		l.Close()
		return nil
	})
}

// Wait returns when its listener is closed.
func TestWaitEndsWithItsListener(t *testing.T) {
	c := connect(t, &redis.UniversalOptions{Addrs: []string{"127.0.0.1:1"}})
	l := c.Listen(redisconn.ListenerConfig{})
	l.Add("news")
	waited := make(chan error, 1)
	go func() { waited <- l.Wait(testwait.Long(t), "news") }()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	err := l.Wait(ctx, "news")
	if !errors.Is(err, redisconn.ErrUnavailable) || !strings.Contains(err.Error(), "refused") {
		t.Errorf("Wait without a server: %v, want ErrUnavailable that says why", err)
	}
	l.Close()
	if err := await(t, "Wait", func() error { return <-waited }); !errors.Is(err, redisconn.ErrClosed) {
		t.Errorf("Wait on a closed listener: %v, want ErrClosed", err)
	}
}

// A refused channel is reported at once and does not affect the other channels. When it is allowed
// later, its messages arrive.
func TestRefusedChannel(t *testing.T) {
	srv := testserver.OwnRedis(t, testserver.RedisConfig{})
	do(t, srv, "ACL", "SETUSER", "limited", "on", ">pw", "~*", "+@all", "resetchannels", "&good*")
	c := connect(t, &redis.UniversalOptions{Addrs: []string{srv.Addr()}, Username: "limited", Password: "pw"})
	heard := make(chan string, 100)
	lost := make(chan error, 100)
	l := c.Listen(redisconn.ListenerConfig{
		Message: func(channel, _ string) { heard <- channel },
		Lost:    func(err error) { lost <- err },
		Ping:    100 * time.Millisecond,
	})
	l.Add("good-1", "bad-1", "good-2")
	for _, name := range []string{"good-1", "good-2"} {
		if err := l.Wait(testwait.Long(t), name); err != nil {
			t.Errorf("Wait for a channel beside a refused one: %v", err)
		}
	}
	for name, call := range map[string]func() error{
		"Wait":      func() error { return l.Wait(testwait.Long(t), "bad-1") },
		"Subscribe": func() error { return l.Subscribe(testwait.Long(t), "bad-2") },
	} {
		if err := await(t, name, call); !errors.Is(err, redisconn.ErrAccess) || !strings.Contains(err.Error(), "NOPERM") {
			t.Errorf("%s of a refused channel: %v, want ErrAccess", name, err)
		}
	}
	for _, name := range []string{"good-1", "good-2"} {
		do(t, srv, "PUBLISH", name, "x")
		if got := <-heard; got != name {
			t.Errorf("heard %s, want %s", got, name)
		}
	}
	do(t, srv, "ACL", "SETUSER", "limited", "&bad*")
	for ctx := testwait.Long(t); ; {
		if err := l.Wait(ctx, "bad-1"); err == nil {
			break
		} else if ctx.Err() != nil {
			t.Fatalf("a channel that was refused once is not asked for again: %v", err)
		}
	}
	do(t, srv, "PUBLISH", "bad-1", "x")
	if got := <-heard; got != "bad-1" {
		t.Errorf("heard %s, want bad-1", got)
	}
	if len(lost) > 0 {
		t.Errorf("the connection was given up: %v", <-lost)
	}
}

// Wait returns at once if the credentials are wrong.
func TestListenerWithAWrongPassword(t *testing.T) {
	srv := testserver.RequireRedis(t)
	o := options(srv, srv.Addr())
	o.Password = "hunter2"
	l := connect(t, o).Listen(redisconn.ListenerConfig{})
	err := await(t, "Subscribe", func() error { return l.Subscribe(testwait.Long(t), "news") })
	if !errors.Is(err, redisconn.ErrAccess) || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("Subscribe with a wrong password: %v, want ErrAccess without the password", err)
	}
}

// A channel that was removed and added again is confirmed by the reply to the second request.
func TestChannelAddedAgain(t *testing.T) {
	srv := testserver.RequireRedis(t)
	c := connect(t, options(srv, srv.Addr()))
	ns := testserver.Namespace()
	heard := make(chan string, 1000)
	l := c.Listen(redisconn.ListenerConfig{Message: func(_, payload string) { heard <- payload }})
	if err := l.Subscribe(testwait.Long(t), ns+"other"); err != nil {
		t.Fatal(err)
	}
	for range 200 {
		l.Add(ns)
		l.Remove(ns)
		l.Add(ns)
		if err := l.Wait(testwait.Long(t), ns); err != nil {
			t.Fatal(err)
		}
		if n := do(t, srv, "PUBLISH", ns, "x").(int64); n != 1 {
			t.Fatal("a confirmed channel has no subscriber")
		}
		<-heard
		l.Remove(ns)
	}
}

// A nil answer shows that the server is connected.
func TestNilIsAnAnswer(t *testing.T) {
	srv := testserver.RequireRedis(t)
	c := connect(t, options(srv, srv.Addr()))
	states := make(chan broker.ConnState, 100)
	defer c.Watch(func(s broker.ConnState, _ error) { states <- s })()
	if s := <-states; s != broker.Disconnected {
		t.Fatalf("a Conn that was not used is %s", s)
	}
	for range 3 {
		if _, err := c.Do(testwait.Long(t), "GET", testserver.Namespace()); !errors.Is(err, redis.Nil) {
			t.Fatalf("GET of nothing: %v", err)
		}
	}
	if s := <-states; s != broker.Connected {
		t.Errorf("after an answer the state is %s", s)
	}
	select {
	case s := <-states:
		t.Errorf("a further state after answers alone: %s", s)
	default:
	}
}

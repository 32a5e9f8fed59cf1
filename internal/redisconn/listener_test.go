package redisconn

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/internal/testwait"
)

// ear records the messages and subscriptions of a listener.
type ear struct {
	mu    sync.Mutex
	heard []string
	subs  map[string]int
}

func (e *ear) config() ListenerConfig {
	e.subs = make(map[string]int)
	return ListenerConfig{
		Ping: 100 * time.Millisecond,
		Message: func(channel, payload string) {
			e.mu.Lock()
			defer e.mu.Unlock()
			e.heard = append(e.heard, channel+"="+payload)
		},
		Subscribed: func(channel string) {
			e.mu.Lock()
			defer e.mu.Unlock()
			e.subs[channel]++
		},
	}
}

func (e *ear) has(s string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, h := range e.heard {
		if h == s {
			return true
		}
	}
	return false
}

func (e *ear) times(channel string) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.subs[channel]
}

func TestListener(t *testing.T) {
	t.Parallel()
	srv := testserver.RequireRedis(t)
	ns := testserver.Namespace()
	relay := testserver.NewRelay(t, srv.Addr())
	o := options(srv)
	o.Addrs = []string{relay.Addr()}
	c, other := open(t, Config{Redis: o}), open(t, Config{Redis: options(srv)})
	say := func(channel, text string) {
		t.Helper()
		if _, err := other.Do(testwait.Long(t), "PUBLISH", ns+channel, text); err != nil {
			t.Fatal(err)
		}
	}
	var e ear
	l := c.Listen(e.config())
	for i, name := range []string{"a", "b", "a"} {
		if err := l.Subscribe(testwait.Long(t), ns+name); err != nil {
			t.Fatalf("Subscribe: %v", err)
		}
		say(name, fmt.Sprint(i))
		testwait.Until(t, "a message", func() bool { return e.has(fmt.Sprintf("%s%s=%d", ns, name, i)) })
	}
	relay.Sever()
	testwait.Until(t, "both channels anew", func() bool { return e.times(ns+"a") == 2 && e.times(ns+"b") == 2 })
	say("a", "after")
	testwait.Until(t, "a message after the cut", func() bool { return e.has(ns + "a=after") })

	relay.SetDown(true)
	l.Add(ns + "c")
	wantIs(t, l.Wait(testwait.Brief(t), ns+"c"), ErrUnavailable, "Wait without a server")
	wantIs(t, l.Subscribe(testwait.Brief(t), ns+"d"), ErrUnavailable, "Subscribe without a server")
	l.Remove(ns + "b")
	relay.SetDown(false)
	if err := l.Wait(testwait.Long(t), ns+"c"); err != nil {
		t.Errorf("Wait: %v", err)
	}
	if err := l.Wait(testwait.Long(t), ns+"a"); err != nil {
		t.Errorf("Wait: %v", err)
	}
	// A connection that was begun before Remove has the channel for a moment.
	testwait.Until(t, "that the removed channels are not subscribed to", func() bool {
		v, err := other.Do(testwait.Long(t), "PUBSUB", "CHANNELS", ns+"[bd]")
		return err == nil && len(v.([]any)) == 0
	})
	say("b", "removed")
	say("d", "never added")
	say("c", "added while the server was away")
	testwait.Until(t, "a message on a channel that was added without a server", func() bool { return e.has(ns + "c=added while the server was away") })
	if e.has(ns+"b=removed") || e.has(ns+"d=never added") {
		t.Error("a channel that was removed is heard")
	}
	wantIs(t, l.Wait(testwait.Long(t), ns+"b"), ErrRefused, "Wait for a channel that was removed")

	l.Remove(ns+"a", ns+"c") // no channel is left: the connection is closed
	testwait.Until(t, "that nobody listens", func() bool {
		v, err := other.Do(testwait.Long(t), "PUBSUB", "CHANNELS", ns+"*")
		return err == nil && len(v.([]any)) == 0
	})
	if err := l.Subscribe(testwait.Long(t), ns+"e"); err != nil {
		t.Errorf("Subscribe after all were removed: %v", err)
	}
	say("e", "again")
	testwait.Until(t, "a message after all were removed", func() bool { return e.has(ns + "e=again") })
	l.Close()
	l.Close()
	wantIs(t, l.Subscribe(testwait.Long(t), ns+"f"), ErrClosed, "Subscribe after Close")
}

// TestListenerPatterns subscribes to a pattern until Remove, also after a lost connection.
func TestListenerPatterns(t *testing.T) {
	t.Parallel()
	srv := testserver.RequireRedis(t)
	ns := testserver.Namespace()
	relay := testserver.NewRelay(t, srv.Addr())
	o := options(srv)
	o.Addrs = []string{relay.Addr()}
	c, other := open(t, Config{Redis: o}), open(t, Config{Redis: options(srv)})
	var e ear
	cfg := e.config()
	cfg.Patterns = true
	l := c.Listen(cfg)
	pattern := ns + "*"
	if err := l.Subscribe(testwait.Long(t), pattern); err != nil {
		t.Fatal(err)
	}
	for i, text := range []string{"before", "after"} {
		testwait.Until(t, "the pattern", func() bool { return e.times(pattern) == i+1 })
		for _, name := range []string{"a", "b"} {
			if _, err := other.Do(testwait.Long(t), "PUBLISH", ns+name, text); err != nil {
				t.Fatal(err)
			}
			testwait.Until(t, "a message", func() bool { return e.has(ns + name + "=" + text) })
		}
		if text == "before" {
			relay.Sever()
		}
	}
	l.Remove(pattern)
	testwait.Until(t, "that no client subscribes to the pattern", func() bool {
		n, err := other.Do(testwait.Long(t), "PUBLISH", ns+"a", "removed")
		return err == nil && n == int64(0)
	})
	l.Close()
}

// TestListenerDeadLink shows that a connection that loses all data is detected and replaced.
func TestListenerDeadLink(t *testing.T) {
	t.Parallel()
	srv := testserver.RequireRedis(t)
	ns := testserver.Namespace()
	proxy := testserver.NewProxy(t, srv.Addr())
	o := options(srv)
	o.Addrs, o.ReadTimeout = []string{proxy.Addr()}, 300*time.Millisecond
	c, other := open(t, Config{Redis: o}), open(t, Config{Redis: options(srv)})
	var e ear
	l := c.Listen(e.config())
	if err := l.Subscribe(testwait.Long(t), ns); err != nil {
		t.Fatal(err)
	}
	proxy.BlackHole(true, true)
	l.Add(ns + "more")
	testwait.Until(t, "that the link is given up", func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.channels[ns] != nil && l.channels[ns].pending()
	})
	proxy.Heal()
	for _, name := range []string{ns, ns + "more"} {
		if err := l.Wait(testwait.Long(t), name); err != nil {
			t.Errorf("Wait after the link was mended: %v", err)
		}
		if _, err := other.Do(testwait.Long(t), "PUBLISH", name, "x"); err != nil {
			t.Fatal(err)
		}
		testwait.Until(t, "a message", func() bool { return e.has(name + "=x") })
	}
}

func TestWatch(t *testing.T) {
	t.Parallel()
	srv := testserver.OwnRedis(t, testserver.RedisConfig{Conf: "maxmemory 5mb"})
	relay := testserver.NewRelay(t, srv.Addr())
	o := options(srv)
	o.Addrs = []string{relay.Addr()}
	c := open(t, Config{Redis: o})
	var mu sync.Mutex
	var states []broker.ConnState
	var reason error
	stop := c.Watch(func(s broker.ConnState, err error) {
		mu.Lock()
		defer mu.Unlock()
		states = append(states, s)
		if s != broker.Connected {
			reason = err
		}
	})
	defer stop()
	last := func(want broker.ConnState) func() bool {
		return func() bool {
			mu.Lock()
			defer mu.Unlock()
			return len(states) > 0 && states[len(states)-1] == want
		}
	}
	testwait.Until(t, "Connected by the probe alone", last(broker.Connected))
	relay.SetDown(true)
	testwait.Until(t, "Disconnected", last(broker.Disconnected))
	mu.Lock()
	wantIs(t, reason, ErrUnavailable, "the reason")
	mu.Unlock()
	relay.SetDown(false)
	testwait.Until(t, "Connected again", last(broker.Connected))

	fill := NewScript("#!lua\nreturn redis.call('SET', KEYS[1], ARGV[1])")
	for i := range 100 {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		_, err := c.EvalOnce(ctx, fill, []string{fmt.Sprint("k", i)}, strings.Repeat("x", 200_000))
		cancel()
		if err != nil {
			wantIs(t, err, ErrBlocked, "a write to a full server")
			break
		}
	}
	testwait.Until(t, "Blocked", last(broker.Blocked))
	if _, err := c.Do(testwait.Long(t), "GET", "k0"); err != nil {
		t.Errorf("a read from a full server: %v", err)
	}
	if !last(broker.Blocked)() {
		t.Error("a read ends Blocked")
	}
	if _, err := srv.Do(testwait.Long(t), "FLUSHALL"); err != nil {
		t.Fatal(err)
	}
	testwait.Until(t, "Connected when there is room", last(broker.Connected))
	stop()
	testwait.Until(t, "that nobody probes any more", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return !c.probing
	})
}

func TestCheckSettings(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		cfg  testserver.RedisConfig
		want []string
	}{
		"good":     {testserver.RedisConfig{}, nil},
		"always":   {testserver.RedisConfig{AOF: "always"}, nil},
		"no file":  {testserver.RedisConfig{AOF: "off"}, []string{"appendonly"}},
		"no flush": {testserver.RedisConfig{AOF: "no"}, []string{"appendfsync"}},
		"eviction": {testserver.RedisConfig{Conf: "maxmemory-policy volatile-lru"}, []string{"volatile-lru"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := testserver.OwnRedis(t, tt.cfg)
			var log strings.Builder
			c := open(t, Config{Redis: options(srv), Logger: slog.New(slog.NewTextHandler(&log, nil))})
			found, err := c.CheckSettings(testwait.Long(t))
			if err != nil || len(found) != len(tt.want) {
				t.Fatalf("CheckSettings: %v, %v, want %d findings", found, err, len(tt.want))
			}
			for i, want := range tt.want {
				if !strings.Contains(found[i], want) || !strings.Contains(log.String(), want) {
					t.Errorf("%q is neither in %q nor in %q", want, found[i], log.String())
				}
			}
			before := log.String()
			if again, err := c.CheckSettings(testwait.Long(t)); len(again) != 0 || err != nil || log.String() != before {
				t.Errorf("it is told again: %v, %v", again, err)
			}
		})
	}
}

// TestCheckSettingsForbidden shows that a server that hides its settings causes a warning.
func TestCheckSettingsForbidden(t *testing.T) {
	t.Parallel()
	srv := testserver.OwnRedis(t, testserver.RedisConfig{})
	if _, err := srv.Do(testwait.Long(t), "ACL", "SETUSER", "guest", "on", ">secret-guest", "~*", "&*", "+@all", "-config"); err != nil {
		t.Fatal(err)
	}
	c := open(t, Config{
		Redis:  &redis.UniversalOptions{Addrs: []string{srv.Addr()}, Username: "guest", Password: "secret-guest"},
		Logger: slog.New(slog.DiscardHandler),
	})
	found, err := c.CheckSettings(testwait.Long(t))
	if err != nil || len(found) != 1 || !strings.Contains(found[0], "could not be verified") {
		t.Errorf("CheckSettings: %v, %v", found, err)
	}
	away := open(t, Config{Redis: &redis.UniversalOptions{Addrs: []string{"127.0.0.1:1"}}})
	_, err = away.CheckSettings(testwait.Brief(t))
	wantIs(t, err, ErrUnavailable, "CheckSettings without a server")
}

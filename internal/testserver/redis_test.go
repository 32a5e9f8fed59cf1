package testserver_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/swarmiji/swarmiji/internal/testserver"
)

// dialRedis connects to a URL with a client that does not retry.
func dialRedis(tb testing.TB, url string) *redis.Client {
	tb.Helper()
	o, err := redis.ParseURL(url)
	if err != nil {
		tb.Fatal(err)
	}
	o.MaxRetries, o.ContextTimeoutEnabled = -1, true
	c := redis.NewClient(o)
	tb.Cleanup(func() { _ = c.Close() })
	return c
}

func mustSet(tb testing.TB, c redis.Cmdable, key, value string) {
	tb.Helper()
	if err := c.Set(deadline(tb, 10*time.Second), key, value, 0).Err(); err != nil {
		tb.Fatal(err)
	}
}

func wantValue(tb testing.TB, c redis.Cmdable, key, value string) {
	tb.Helper()
	if got, err := c.Get(deadline(tb, 10*time.Second), key).Result(); err != nil || got != value {
		tb.Fatalf("GET %s = %q, %v; want %q, which was stored", key, got, err, value)
	}
}

func TestRedisNeedsItsPassword(t *testing.T) {
	r := testserver.RequireRedis(t)
	c := redis.NewClient(&redis.Options{Addr: r.Addr(), MaxRetries: -1})
	defer c.Close()
	if err := c.Ping(t.Context()).Err(); err == nil || !strings.Contains(err.Error(), "NOAUTH") {
		t.Errorf("without a password: %v, want NOAUTH", err)
	}
	if !strings.Contains(r.URL(), r.User()+":"+r.Password()+"@"+r.Addr()) {
		t.Error("the URL lacks the user, the password or the address")
	}
	if err := dialRedis(t, r.URL()).Ping(t.Context()).Err(); err != nil {
		t.Errorf("with the password of the URL: %v", err)
	}
}

// Stored data survives a restart in good order and SIGKILL, on the same URL.
func TestRedisRestartKeepsData(t *testing.T) {
	r := testserver.RequireRedis(t)
	for name, down := range map[string]func(){
		"restart": func() {},
		"killed":  r.Kill,
	} {
		t.Run(name, func(t *testing.T) {
			key, pid := testserver.Namespace(), r.PID()
			mustSet(t, dialRedis(t, r.URL()), key, name)
			down()
			if err := r.Restart(deadline(t, time.Minute)); err != nil {
				t.Fatal(err)
			}
			if r.PID() == pid {
				t.Error("the server has the same process id as before")
			}
			wantValue(t, dialRedis(t, r.URL()), key, name)
		})
	}
}

// Without an append-only file the data do not survive a Kill.
func TestRedisWithoutFileForgets(t *testing.T) {
	r := testserver.OwnRedis(t, testserver.RedisConfig{AOF: "off"})
	mustSet(t, dialRedis(t, r.URL()), "k", "v")
	r.Kill()
	if err := r.Restart(deadline(t, time.Minute)); err != nil {
		t.Fatal(err)
	}
	if err := dialRedis(t, r.URL()).Get(t.Context(), "k").Err(); !errors.Is(err, redis.Nil) {
		t.Errorf("GET = %v, want nothing stored", err)
	}
}

func TestRedisConfIsAppliedLast(t *testing.T) {
	r := testserver.OwnRedis(t, testserver.RedisConfig{AOF: "everysec", Conf: "maxmemory-policy allkeys-lru\nmaxmemory 20mb"})
	c := dialRedis(t, r.URL())
	for setting, want := range map[string]string{
		"maxmemory-policy": "allkeys-lru", "maxmemory": "20971520", "appendfsync": "everysec", "appendonly": "yes",
	} {
		if got, err := c.ConfigGet(t.Context(), setting).Result(); err != nil || got[setting] != want {
			t.Errorf("CONFIG GET %s = %v, %v; want %s", setting, got, err, want)
		}
	}
}

// RequireRedis returns a working server after a test killed, paused or stopped it.
func TestRequireRedisMends(t *testing.T) {
	for name, breakIt := range map[string]func(*testserver.Redis){
		"killed":  (*testserver.Redis).Kill,
		"paused":  (*testserver.Redis).Pause,
		"stopped": func(r *testserver.Redis) { _ = r.Stop(context.Background()) },
	} {
		t.Run(name, func(t *testing.T) {
			breakIt(testserver.RequireRedis(t))
			mustSet(t, dialRedis(t, testserver.RequireRedis(t).URL()), testserver.Namespace(), "v")
		})
	}
}

func TestRedisPauseSilences(t *testing.T) {
	r := testserver.RequireRedis(t)
	c := dialRedis(t, r.URL())
	if err := c.Ping(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	r.Pause()
	reply := make(chan error, 1)
	go func() { reply <- c.Ping(context.Background()).Err() }()
	select {
	case err := <-reply:
		t.Errorf("a paused server answered within 300 ms: %v", err)
	case <-time.After(300 * time.Millisecond):
	}
	r.Resume()
	select {
	case err := <-reply:
		if err != nil {
			t.Errorf("after Resume: %v", err)
		}
	case <-time.After(10 * time.Second):
		t.Error("no answer after Resume")
	}
}

func TestRedisDo(t *testing.T) {
	r := testserver.RequireRedis(t)
	ctx := deadline(t, 10*time.Second)
	if got, err := r.Do(ctx, "ECHO", "word"); err != nil || got != "word" {
		t.Errorf("ECHO = %v, %v", got, err)
	}
	if _, err := r.Do(ctx, "NO-SUCH-COMMAND"); err == nil || strings.Contains(err.Error(), r.Password()) {
		t.Errorf("an unknown command: %v", err)
	}
	if _, err := r.Do(ctx, "DEBUG", "SLEEP", "0"); err != nil {
		t.Errorf("DEBUG is not allowed: %v", err)
	}
}

func TestRedisCloseAllConnections(t *testing.T) {
	r := testserver.RequireRedis(t)
	c, err := net.Dial("tcp", r.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Write([]byte("PING\r\n")); err != nil {
		t.Fatal(err)
	}
	// any answer shows that the server has accepted the connection
	if _, err := c.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	if err := r.CloseAllConnections(deadline(t, 10*time.Second)); err != nil {
		t.Fatal(err)
	}
	mustEnd(t, c)
}

func TestRedisTLS(t *testing.T) {
	files, err := testserver.NewTLSFiles(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	r := testserver.OwnRedis(t, testserver.RedisConfig{TLS: files, RequireClientCert: true})
	for _, cert := range []bool{true, false} {
		o, err := redis.ParseURL(r.TLSURL())
		if err != nil {
			t.Fatal(err)
		}
		if o.TLSConfig, err = files.ClientConfig(cert); err != nil {
			t.Fatal(err)
		}
		o.MaxRetries = -1
		c := redis.NewClient(o)
		defer c.Close()
		if err := c.Ping(deadline(t, 10*time.Second)).Err(); (err == nil) != cert {
			t.Errorf("with client certificate %v: %v", cert, err)
		}
	}
}

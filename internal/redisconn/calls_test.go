package redisconn

import (
	"context"
	"crypto/tls"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/internal/testwait"
)

func TestConfig(t *testing.T) {
	tests := map[string]struct {
		o    *redis.UniversalOptions
		want string
	}{
		"no options":   {nil, "no options"},
		"no address":   {&redis.UniversalOptions{}, "no address"},
		"empty":        {&redis.UniversalOptions{Addrs: []string{""}}, "no address"},
		"replicas":     {&redis.UniversalOptions{Addrs: []string{"a:1"}, ReadOnly: true}, "ReadOnly"},
		"database":     {&redis.UniversalOptions{Addrs: []string{"a:1", "b:1"}, DB: 3}, "database 3"},
		"no timeout":   {&redis.UniversalOptions{Addrs: []string{"a:1"}, ReadTimeout: -1}, "limited"},
		"unverified":   {&redis.UniversalOptions{Addrs: []string{"a:1"}, TLSConfig: &tls.Config{InsecureSkipVerify: true}}, "InsecureSkipVerify"},
		"all at once":  {&redis.UniversalOptions{ReadOnly: true, DialTimeout: -1}, "limited"},
		"all at once2": {&redis.UniversalOptions{ReadOnly: true, DialTimeout: -1}, "no address"},
	}
	for name, tt := range tests {
		c, err := New(Config{Redis: tt.o})
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want an error about %q", name, err, tt.want)
		}
		if c != nil {
			t.Errorf("%s: a Conn beside an error", name)
		}
	}
	given := &redis.UniversalOptions{Addrs: []string{"127.0.0.1:1"}, TLSConfig: &tls.Config{}, MaxRetries: 7}
	c := open(t, Config{Redis: given})
	if given.MaxRetries != 7 || given.TLSConfig.MinVersion != 0 || given.ClientName != "" {
		t.Errorf("New has changed the options: %+v", given)
	}
	client, ok := c.client.(*redis.Client)
	if !ok || c.Clustered() {
		t.Fatalf("a %T for one address", c.client)
	}
	if o := client.Options(); o.MaxRetries != 0 || !o.ContextTimeoutEnabled || o.TLSConfig.MinVersion != tls.VersionTLS12 || o.ClientName != "swarmiji" {
		t.Errorf("the client's options are %+v", o)
	}
	if !open(t, Config{Redis: &redis.UniversalOptions{Addrs: []string{"127.0.0.1:1", "127.0.0.1:2"}}}).Clustered() {
		t.Error("two addresses are no cluster")
	}
}

// TestAnswers checks the class of each error answer of the server. A call that was certainly not
// executed is repeated until ctx ends.
func TestAnswers(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		class error
		waits bool
	}{
		"-LOADING Redis is loading the dataset in memory":                     {ErrUnavailable, true},
		"-READONLY You can't write against a read only replica.":              {ErrUnavailable, true},
		"-MASTERDOWN Link with MASTER is down":                                {ErrUnavailable, true},
		"-CLUSTERDOWN The cluster is down":                                    {ErrUnavailable, true},
		"-TRYAGAIN Multiple keys request during rehashing of slot":            {ErrUnavailable, true},
		"-BUSY Redis is busy running a script":                                {ErrUnavailable, true},
		"-ERR max number of clients reached":                                  {ErrUnavailable, true},
		"-OOM command not allowed when used memory > 'maxmemory'.":            {ErrBlocked, true},
		"-OOM allow-oom flag is not set on the script":                        {ErrBlocked, true},
		"-MISCONF Redis is configured to save RDB snapshots":                  {ErrBlocked, true},
		"-NOREPLICAS Not enough good replicas to write.":                      {ErrBlocked, true},
		"-NOAUTH Authentication required.":                                    {ErrAccess, false},
		"-WRONGPASS invalid username-password pair or user is disabled.":      {ErrAccess, false},
		"-NOPERM this user has no permissions to run the 'evalsha' command":   {ErrAccess, false},
		"-WRONGTYPE Operation against a key holding the wrong kind of value":  {ErrRefused, false},
		"-ERR Error running script: attempt to index a nil value":             {ErrRefused, false},
		"-CROSSSLOT Keys in request don't hash to the same slot":              {ErrRefused, false},
		"-ERR value is not an integer or out of range script: abc, on line 1": {ErrRefused, false},
	}
	script := NewScript("return 1")
	for answer, tt := range tests {
		t.Run(strings.Fields(answer)[0], func(t *testing.T) {
			t.Parallel()
			always := newFake(t, answer)
			c := open(t, Config{Redis: &redis.UniversalOptions{Addrs: []string{always.addr}}})
			_, err := c.Eval(testwait.Brief(t), script, []string{"k"})
			for tt.waits && errors.Is(err, ErrIndeterminate) { // ctx ended during an attempt
				_, err = c.Eval(testwait.Brief(t), script, []string{"k"})
			}
			wantIs(t, err, tt.class, answer)
			if tt.waits != (always.asked() > 1) || tt.waits != Repeatable(err) {
				t.Errorf("%s: asked %d times, repeatable: %v", answer, always.asked(), Repeatable(err))
			}
			if tt.waits {
				wantIs(t, err, context.DeadlineExceeded, answer)
			}
			before := always.asked()
			_, err = c.EvalOnce(testwait.Long(t), script, []string{"k"})
			wantIs(t, err, tt.class, answer)
			if n := always.asked() - before; n != 1 {
				t.Errorf("EvalOnce asked %d times", n)
			}
			if !tt.waits {
				return
			}
			passing := newFake(t, answer, answer, ":42")
			c = open(t, Config{Redis: &redis.UniversalOptions{Addrs: []string{passing.addr}}})
			if v, err := c.Eval(testwait.Long(t), script, []string{"k"}); v != int64(42) || err != nil || passing.asked() != 3 {
				t.Errorf("%s twice, then 42: %v, %v, asked %d times", answer, v, err, passing.asked())
			}
		})
	}
}

func TestEval(t *testing.T) {
	t.Parallel()
	srv := testserver.OwnRedis(t, testserver.RedisConfig{})
	c := open(t, Config{Redis: options(srv)})
	script := NewScript("return {KEYS[1], ARGV[1], 7, false}")
	for range 2 {
		v, err := c.Eval(testwait.Long(t), script, []string{"k"}, "a")
		got, ok := v.([]any)
		if err != nil || !ok || len(got) != 4 || got[0] != "k" || got[1] != "a" || got[2] != int64(7) || got[3] != nil {
			t.Errorf("Eval: %v, %v", v, err)
		}
		if _, err := srv.Do(testwait.Long(t), "SCRIPT", "FLUSH"); err != nil {
			t.Fatal(err)
		}
	}
	if v, err := c.Eval(testwait.Long(t), NewScript("return false"), []string{"k"}); v != nil || err != nil {
		t.Errorf("a script that answers nothing: %v, %v", v, err)
	}
	if _, err := c.Do(testwait.Long(t), "GET", "missing"); !errors.Is(err, redis.Nil) {
		t.Errorf("Do of a missing key: %v", err)
	}
	if v, err := c.Do(testwait.Long(t), "SET", "k", "v"); v != "OK" || err != nil {
		t.Errorf("Do: %v, %v", v, err)
	}
	_, err := c.Eval(testwait.Long(t), NewScript("return redis.call('LPUSH', KEYS[1], 'x')"), []string{"k"})
	wantIs(t, err, ErrRefused, "LPUSH on a string")
}

// TestLostAnswer shows that a script whose answer was lost executes once, on a single server and on
// a cluster, whose client would repeat it.
func TestLostAnswer(t *testing.T) {
	t.Parallel()
	incr := NewScript("return redis.call('INCR', KEYS[1])")
	check := func(t *testing.T, o *redis.UniversalOptions) {
		l := &lossy{}
		o.Dialer = l.dial
		c := open(t, Config{Redis: o})
		if v, err := c.Eval(testwait.Long(t), incr, []string{"n"}); v != int64(1) || err != nil {
			t.Fatalf("Eval: %v, %v", v, err)
		}
		for range 3 {
			lost := l.loseAnswer(incr.Hash())
			_, err := c.Eval(testwait.Long(t), incr, []string{"n"})
			wantIs(t, err, ErrIndeterminate, "Eval whose answer was lost")
			<-lost
		}
		if v, err := c.Do(testwait.Long(t), "GET", "n"); v != "4" || err != nil {
			t.Errorf("n is %v, %v; want 4: each was executed once", v, err)
		}
		lost := l.loseAnswer("INCRBY")
		_, err := c.Do(testwait.Long(t), "INCRBY", "n", "10")
		wantIs(t, err, ErrIndeterminate, "Do whose answer was lost")
		<-lost
		if v, err := c.Do(testwait.Long(t), "GET", "n"); v != "14" || err != nil {
			t.Errorf("n is %v, %v; want 14", v, err)
		}
	}
	t.Run("single", func(t *testing.T) {
		t.Parallel()
		check(t, options(testserver.OwnRedis(t, testserver.RedisConfig{})))
	})
	t.Run("cluster", func(t *testing.T) {
		t.Parallel()
		srv := testserver.OwnRedisCluster(t, testserver.RedisConfig{})
		check(t, &redis.UniversalOptions{Addrs: srv.Addrs(), Username: srv.User(), Password: srv.Password()})
	})
}

// TestWhatMayHaveLeft shows that a call whose ctx ends is ErrUnavailable only if no command was
// sent.
func TestWhatMayHaveLeft(t *testing.T) {
	t.Parallel()
	srv := testserver.OwnRedis(t, testserver.RedisConfig{})
	used, fresh := open(t, Config{Redis: options(srv)}), open(t, Config{Redis: options(srv)})
	incr := NewScript("return redis.call('INCR', KEYS[1])")
	if _, err := used.Eval(testwait.Long(t), incr, []string{"n"}); err != nil {
		t.Fatal(err)
	}
	srv.Pause()
	_, err := used.Eval(testwait.Brief(t), incr, []string{"n"})
	wantIs(t, err, ErrIndeterminate, "a server that hangs after the command has left")
	_, err = fresh.Eval(testwait.Brief(t), incr, []string{"n"})
	wantIs(t, err, ErrUnavailable, "a server that hangs before it has greeted")
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	_, err = used.Eval(ended, incr, []string{"n"})
	wantIs(t, err, ErrUnavailable, "a ctx that had ended before")
	srv.Resume()
	if v, err := fresh.Eval(testwait.Long(t), incr, []string{"n"}); v != int64(3) || err != nil {
		t.Errorf("n is %v, %v; want 3: of the two calls during the pause one was executed", v, err)
	}
}

func TestWaitsForTheServer(t *testing.T) {
	t.Parallel()
	srv := testserver.RequireRedis(t)
	relay := testserver.NewRelay(t, srv.Addr())
	o := options(srv)
	o.Addrs = []string{relay.Addr()}
	relay.SetDown(true) // before the Conn has a connection, which might take a command as it is cut
	c := open(t, Config{Redis: o})
	one := NewScript("return 1")
	_, err := c.Eval(testwait.Brief(t), one, []string{"k"})
	wantIs(t, err, ErrUnavailable, "Eval without a server")
	var wg sync.WaitGroup
	for range 30 {
		wg.Go(func() {
			if v, err := c.Eval(testwait.Long(t), one, []string{"k"}); v != int64(1) || err != nil {
				t.Errorf("Eval that waited: %v, %v", v, err)
			}
		})
	}
	relay.SetDown(false)
	wg.Wait()
}

func TestAccess(t *testing.T) {
	t.Parallel()
	srv := testserver.RequireRedis(t)
	for name, o := range map[string]*redis.UniversalOptions{
		"a wrong password": {Addrs: []string{srv.Addr()}, Username: srv.User(), Password: "secret-wrong"},
		"none":             {Addrs: []string{srv.Addr()}},
	} {
		c := open(t, Config{Redis: o})
		begun := time.Now()
		_, err := c.Eval(testwait.Long(t), NewScript("return 1"), []string{"k"})
		wantIs(t, err, ErrAccess, name)
		if time.Since(begun) > 20*time.Second {
			t.Errorf("%s: it was repeated", name)
		}
	}
}

func TestClose(t *testing.T) {
	t.Parallel()
	c := open(t, Config{Redis: &redis.UniversalOptions{Addrs: []string{"127.0.0.1:1"}}})
	waiting := make(chan error, 1)
	go func() {
		_, err := c.Eval(context.Background(), NewScript("return 1"), []string{"k"})
		waiting <- err
	}()
	l := c.Listen(ListenerConfig{})
	l.Add("c")
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			if err := c.Close(testwait.Long(t)); err != nil {
				t.Errorf("Close: %v", err)
			}
		})
	}
	wg.Wait()
	wantIs(t, <-waiting, ErrClosed, "Eval that waited at Close")
	_, err := c.Eval(testwait.Long(t), NewScript("return 1"), []string{"k"})
	wantIs(t, err, ErrClosed, "Eval after Close")
	wantIs(t, l.Subscribe(testwait.Long(t), "d"), ErrClosed, "Subscribe after Close")
	wantIs(t, c.Listen(ListenerConfig{}).Subscribe(testwait.Long(t), "d"), ErrClosed, "Listen after Close")
	told := make(chan error, 1)
	c.Watch(func(_ broker.ConnState, err error) { told <- err })
	wantIs(t, <-told, ErrClosed, "Watch after Close")
}

func TestEvalWait(t *testing.T) {
	t.Parallel()
	pair := testserver.OwnRedisReplica(t, testserver.RedisConfig{})
	c := open(t, Config{Redis: options(pair.Primary)})
	incr := NewScript("return redis.call('INCR', KEYS[1])")
	for i := range 2 {
		v, n, err := c.EvalWait(testwait.Long(t), 1, 5*time.Second, incr, []string{"n"})
		if v != int64(i+1) || n != 1 || err != nil {
			t.Errorf("EvalWait: %v, %d replicas, %v", v, n, err)
		}
	}
	if err := pair.Cut(testwait.Long(t)); err != nil {
		t.Fatal(err)
	}
	v, n, err := c.EvalWait(testwait.Long(t), 1, 100*time.Millisecond, incr, []string{"n"})
	if v != int64(3) || n != 0 || err != nil {
		t.Errorf("EvalWait without a replica: %v, %d replicas, %v", v, n, err)
	}
}

// FuzzHarmless shows that harmless never panics and never accepts a script.
func FuzzHarmless(f *testing.F) {
	for _, s := range []string{"", "*", "*2\r\n$4\r\nPING\r\n", "*3\r\n$7\r\nevalsha\r\n", "*1\r\n$-1\r\n", "*1\r\n$99999999999999999999\r\nping"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, p []byte) {
		if harmless(p) && strings.Contains(strings.ToLower(string(p[:min(len(p), 30)])), "\r\n$4\r\neval") {
			t.Errorf("%q is taken for a greeting", p)
		}
	})
}

func TestHarmless(t *testing.T) {
	for s, want := range map[string]bool{
		"*2\r\n$5\r\nhello\r\n$1\r\n2\r\n": true, "*1\r\n$4\r\nPING\r\n": true, "*3\r\n$7\r\nevalsha\r\n$40\r\n": false,
		"*3\r\n$3\r\nset\r\n$1\r\n": false, "$4\r\nping": false, "": false, "*1\r\n$4\r\npin": false,
	} {
		if got := harmless([]byte(s)); got != want {
			t.Errorf("harmless(%q) = %v", s, got)
		}
	}
}

package open_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/capability"
	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/internal/testwait"
	"github.com/swarmiji/swarmiji/open"
)

// keys returns the names of all keys of a database that match the pattern.
func keys(t *testing.T, r *testserver.Redis, pattern string) []string {
	t.Helper()
	answer, err := r.Do(t.Context(), "KEYS", pattern)
	if err != nil {
		t.Fatal(err)
	}
	list, ok := answer.([]any)
	if !ok {
		t.Fatalf("KEYS answers %T", answer)
	}
	names := make([]string, len(list))
	for i, k := range list {
		names[i] = fmt.Sprint(k)
	}
	return names
}

// TestRedis shows that two Swarms with one URL exchange tasks through the server, and that
// parameters reach the adapters.
func TestRedis(t *testing.T) {
	r := testserver.RequireRedis(t)
	ns := testserver.Namespace()
	in := opened(t, r.URL()+"?pool_size=7&namespace="+ns, open.Options{})
	out := opened(t, r.URL(), open.Options{Namespace: ns, Name: "a name " + ns})
	roundTrip(t, out, in)
	if found := keys(t, r, "*"+ns+"*"); len(found) == 0 {
		t.Errorf("no key has the namespace %s", ns)
	}
	clients, err := r.Do(t.Context(), "CLIENT", "LIST")
	if err != nil || !strings.Contains(fmt.Sprint(clients), "name=a-name-"+ns) {
		t.Errorf("no client is called a-name-%s: %v %v", ns, clients, err)
	}
	if err := out.Ping(t.Context()); err != nil {
		t.Errorf("Ping: %v", err)
	}
}

// TestRedisDatabase shows that the database is part of the URL or a parameter. Tasks of one
// database are not visible in another.
func TestRedisDatabase(t *testing.T) {
	r := testserver.RequireRedis(t)
	ns := testserver.Namespace()
	url := strings.TrimSuffix(r.URL(), "/0")
	roundTrip(t, opened(t, url+"/3", open.Options{Namespace: ns}), opened(t, url+"?db=3", open.Options{Namespace: ns}))
	if found := keys(t, r, "*"+ns+"*"); len(found) > 0 {
		t.Errorf("in database 0 are %v", found)
	}
}

func TestRedisTLS(t *testing.T) {
	files, err := testserver.NewTLSFiles(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	r := testserver.OwnRedis(t, testserver.RedisConfig{TLS: files, RequireClientCert: true})
	url := r.TLSURL() + "?ca=" + files.CA + "&cert=" + files.ClientCert + "&key=" + files.ClientKey
	roundTrip(t, opened(t, url, open.Options{}), opened(t, url+"&server_name=localhost", open.Options{}))
	stranger(t, r.TLSURL(), r.Password())
}

// stranger checks that a server with an unknown authority is not trusted.
func stranger(t *testing.T, url, password string) {
	t.Helper()
	s := opened(t, url, open.Options{})
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	_, err := s.Events.Subscribe(ctx, events.Filter{})
	if err == nil {
		t.Fatal("a server of an unknown authority was trusted")
	}
	for _, err := range []error{err, s.Ping(ctx)} {
		if err == nil || strings.Contains(err.Error(), password) {
			t.Errorf("the error is %v", err)
		}
	}
}

func TestRedisCluster(t *testing.T) {
	c := testserver.OwnRedisCluster(t, testserver.RedisConfig{})
	url := "redis-cluster://" + c.User() + ":" + c.Password() + "@" + strings.Join(c.Addrs(), ",")
	s := opened(t, url+"?namespace=a", open.Options{})
	roundTrip(t, s, opened(t, strings.ReplaceAll(strings.Join(c.URLs(), ","), "redis://", "redis-cluster://")+"?namespace=a", open.Options{}))
	if err := s.Ping(t.Context()); err != nil {
		t.Errorf("Ping: %v", err)
	}
}

func TestRedisSentinel(t *testing.T) {
	s := testserver.OwnRedisSentinel(t, testserver.RedisConfig{})
	at := s.Primary.User() + ":" + s.Primary.Password() + "@" + s.Sentinel.Addr()
	url := "redis-sentinel://" + at + "/" + s.MasterName() + "?db=2&sentinel_password=" + s.Sentinel.Password()
	in := opened(t, url, open.Options{})
	roundTrip(t, opened(t, url+"&sentinel_user="+s.Sentinel.User(), open.Options{}), in)
	if err := in.Ping(t.Context()); err != nil {
		t.Errorf("Ping: %v", err)
	}
}

func TestRedisRefusesPassword(t *testing.T) {
	r := testserver.RequireRedis(t)
	s := opened(t, "redis://nobody:"+secret+"@"+r.Addr(), open.Options{})
	refused(t, s, broker.ErrAccess, "Redis at "+r.Addr()+": invalid username-password pair", "correct user and password")
}

// TestHworker shows that hworker uses four keys. Results and events are in the same Redis.
func TestHworker(t *testing.T) {
	r := testserver.OwnRedis(t, testserver.RedisConfig{})
	url := "hworker+" + r.URL()
	ns := testserver.Namespace()
	s := opened(t, url, open.Options{Namespace: ns})
	roundTrip(t, s, opened(t, url+"?namespace="+ns, open.Options{}))
	if err := s.Ping(t.Context()); err != nil {
		t.Errorf("Ping: %v", err)
	}
	b, err := open.Broker(t.Context(), url, open.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Publish(t.Context(), "jobs", &broker.Message{ID: "1", ContentType: "application/json", Body: []byte(`{}`)}); err != nil {
		t.Fatal(err)
	}
	if found := keys(t, r, "hworker-*"); len(found) != 1 || found[0] != "hworker-jobs-jobs" {
		t.Errorf("the keys are %v", found)
	}
	if err := b.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestHworkerParameters shows that the URL sets the values of hworker's configuration.
func TestHworkerParameters(t *testing.T) {
	r := testserver.OwnRedis(t, testserver.RedisConfig{})
	ctx := testwait.Long(t)
	brokerOf := func(query string) broker.Broker {
		b, err := open.Broker(ctx, "hworker+"+r.URL()+query, open.Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = b.Close(context.Background()) })
		return b
	}
	subscribed := func(b broker.Broker, queue string) broker.Delivery {
		s, err := b.Subscribe(ctx, queue, broker.SubscribeOptions{Prefetch: 1})
		if err != nil {
			t.Fatal(err)
		}
		d, err := s.Receive(ctx)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	do := func(args ...any) any {
		v, err := r.Do(ctx, args...)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	letters, _ := capability.As[broker.DeadLetterer](brokerOf("?failed_size=2"))
	for _, id := range []string{"1", "2", "3"} {
		if err := letters.PutDead(ctx, "few", broker.Dead{Message: &broker.Message{ID: id, Body: []byte(`{}`)}}); err != nil {
			t.Fatal(err)
		}
	}
	if n := do("LLEN", "hworker-failed-few"); fmt.Sprint(n) != "2" {
		t.Errorf("failed_size=2 keeps %v", n)
	}
	do("HSET", "hworker-progress-late", `["u",1]`, time.Now().UTC().Add(-time.Minute).Format(`"2006-01-02T15:04:05.000000Z"`))
	subscribed(brokerOf("?timeout=5s"), "late") // with the default it would wait for another minute
	do("LPUSH", "hworker-jobs-long", `["u",1]`)
	subscribed(brokerOf("?timeout=2s&heartbeat=true"), "long")
	first := fmt.Sprint(do("HGETALL", "hworker-progress-long"))
	testwait.Until(t, "the start time is renewed", func() bool { return fmt.Sprint(do("HGETALL", "hworker-progress-long")) != first })
}

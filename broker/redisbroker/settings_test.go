package redisbroker_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/broker/brokertest"
	"github.com/swarmiji/swarmiji/broker/redisbroker"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/internal/testwait"
)

func TestConfig(t *testing.T) {
	_, err := redisbroker.New(redisbroker.Config{
		Namespace: "a.b", MaxBody: -1, Lease: time.Millisecond, Poll: -1, WaitReplicas: -1,
	})
	for _, want := range []string{"namespace", "MaxBody", "lease", "poll", "WaitReplicas", "no options"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("New tells nothing of %s: %v", want, err)
		}
	}
	b, err := redisbroker.New(redisbroker.Config{Redis: &redis.UniversalOptions{Addrs: []string{"127.0.0.1:1"}}})
	if err != nil {
		t.Fatalf("New: %v", err)
	}
	_, err = b.Subscribe(context.Background(), "q", broker.SubscribeOptions{Prefetch: -1})
	if !errors.Is(err, broker.ErrMalformed) {
		t.Errorf("Subscribe with a negative prefetch: %v", err)
	}
	err = b.Declare(context.Background(), broker.Queue{Name: "q", Levels: []int{5, 5}})
	if !errors.Is(err, broker.ErrMalformed) {
		t.Errorf("Declare with levels that do not ascend: %v", err)
	}
	if err := b.Close(context.Background()); err != nil {
		t.Errorf("Close: %v", err)
	}
}

// TestSettingsAreToldOnce shows that server settings that weaken the promise are logged once,
// without the password.
func TestSettingsAreToldOnce(t *testing.T) {
	t.Parallel()
	srv := testserver.OwnRedis(t, testserver.RedisConfig{AOF: "off", Conf: "maxmemory-policy allkeys-lru"})
	var book logBook
	b := connect(t, redisbroker.Config{Redis: options(srv), Logger: book.logger()})
	for i := range 5 {
		q := declared(t, b, fmt.Sprint("q", i))
		subscribe(t, b, q, 1)
	}
	testwait.Until(t, "the report", func() bool {
		return strings.Contains(book.String(), "maxmemory-policy") && strings.Contains(book.String(), "appendonly")
	})
	if got := book.String(); strings.Count(got, "level=WARN") != 2 || strings.Contains(got, srv.Password()) {
		t.Errorf("the log is %q", got)
	}
}

func TestOtherLevelsAreToldOnce(t *testing.T) {
	t.Parallel()
	var book logBook
	ns := testserver.Namespace()
	one := connect(t, redisbroker.Config{Namespace: ns})
	two := connect(t, redisbroker.Config{Namespace: ns, Logger: book.logger()})
	for _, b := range []*redisbroker.Broker{one, two, two} {
		levels := []int{10, 100}
		if b == two {
			levels = []int{50}
		}
		if err := b.Declare(testwait.Long(t), broker.Queue{Name: "q", Levels: levels}); err != nil {
			t.Fatalf("Declare: %v", err)
		}
	}
	if got := book.String(); strings.Count(got, "other priority levels") != 1 {
		t.Errorf("the log is %q", got)
	}
}

// TestScripts shows that each script uses only its declared keys, and documents its arguments and
// its answer.
func TestScripts(t *testing.T) {
	for _, name := range []string{
		"ack", "bury", "claim", "dead", "declare", "dropdead", "enqueue", "find", "judge", "leave", "list", "look", "mute", "node", "note",
		"purge", "purgedead", "putdead", "release", "renew", "retry", "stats", "subscribe", "update",
	} {
		source, err := redisbroker.Source(name)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if regexp.MustCompile(`\bK\.`).MatchString(source) {
			t.Errorf("%s: a key's name was not replaced", name)
		}
		for _, want := range []string{"\n-- KEYS: ", "\n-- ARGV: ", "\n-- Returns "} {
			if !strings.Contains(source, want) {
				t.Errorf("%s has no line %q", name, want)
			}
		}
	}
}

// commands returns how often each command was executed since the last call.
func commands(t testing.TB, srv *testserver.Redis) map[string]int {
	t.Helper()
	out := fmt.Sprint(do(t, srv, "INFO", "commandstats"))
	do(t, srv, "CONFIG", "RESETSTAT")
	calls := make(map[string]int)
	for _, m := range regexp.MustCompile(`cmdstat_([^:]+):calls=(\d+)`).FindAllStringSubmatch(out, -1) {
		var n int
		_, _ = fmt.Sscan(m[2], &n)
		calls[m[1]] = n
	}
	return calls
}

// TestCommands shows that with many messages in a queue no command visits all of them. The number
// of commands does not depend on their number.
func TestCommands(t *testing.T) {
	t.Parallel()
	srv := testserver.OwnRedis(t, testserver.RedisConfig{Conf: "slowlog-log-slower-than 50000"})
	b := connect(t, redisbroker.Config{Redis: options(srv)})
	q := declared(t, b, "q")
	const many = 100_000
	for range many / 10_000 {
		out := make([]broker.Outgoing, 0, 10_000)
		for _, m := range messages(testserver.Namespace(), 10_000) {
			m.Body = m.Body[:4]
			o := broker.Outgoing{Queue: q, Message: m}
			if len(out)%2 == 0 {
				o.At = time.Now().Add(time.Hour)
			}
			out = append(out, o)
		}
		if err := b.PublishBatch(testwait.Long(t), out); err != nil {
			t.Fatal(err)
		}
	}
	commands(t, srv)
	do(t, srv, "SLOWLOG", "RESET") // a batch of 10,000 may take its time
	publish(t, b, q, messages("x", 5)...)
	if o, err := b.Find(testwait.Long(t), q, "x-000002"); err != nil || o.Message.ID != "x-000002" {
		t.Errorf("Find: %+v, %v", o, err)
	}
	if err := b.Delete(testwait.Long(t), q, "x-000002"); err != nil {
		t.Errorf("Delete: %v", err)
	}
	if err := b.Update(testwait.Long(t), q, broker.Outgoing{Message: message("x-000003"), At: time.Now().Add(time.Hour)}); err != nil {
		t.Errorf("Update: %v", err)
	}
	if st := stats(t, b, q); st.Ready != many/2+3 || st.Delayed != many/2+1 {
		t.Errorf("%+v", st)
	}
	s := subscribe(t, b, q, 10)
	for i := range 30 {
		d := receive(t, s)
		if i%10 == 0 {
			if err := d.DeadLetter(testwait.Long(t), broker.Dead{Reason: "why"}); err != nil {
				t.Fatal(err)
			}
			continue
		}
		ack(t, d)
	}
	if err := s.Close(testwait.Long(t)); err != nil {
		t.Fatal(err)
	}
	if _, err := broker.ListDead(testwait.Long(t), b, q, 2); err != nil {
		t.Fatal(err)
	}
	if n, err := brokertest.Requeue(testwait.Long(t), b, q); n != 3 || err != nil {
		t.Errorf("Requeue: %d, %v", n, err)
	}
	calls := commands(t, srv)
	for _, bad := range []string{"keys", "scan", "hgetall", "hkeys", "hvals", "hscan", "lpos", "linsert", "smembers", "sort"} {
		if calls[bad] > 0 {
			t.Errorf("%s was called %d times", bad, calls[bad])
		}
	}
	if calls["lrange"] > 3 {
		t.Errorf("LRANGE was called %d times, for the dead letters 3 are enough", calls["lrange"])
	}
	if calls["evalsha"]+calls["eval"] > 200 {
		t.Errorf("%d scripts for some 50 steps", calls["evalsha"]+calls["eval"])
	}
	// On a busy machine any script may be slow. One that visits 100,000 messages would be slow each
	// time.
	slow := fmt.Sprint(do(t, srv, "SLOWLOG", "GET", 100))
	if n := strings.Count(slow, "evalsha"); n > 5 {
		t.Errorf("%d scripts took longer than 50 ms", n)
	}
	if n, err := b.Purge(testwait.Long(t), q); err != nil || n < many/2-30 {
		t.Errorf("Purge: %d, %v", n, err)
	}
	if st := stats(t, b, q); st.Ready != 0 || st.Delayed != many/2+1 {
		t.Errorf("after Purge: %+v", st)
	}
}

// TestIdle shows that a consumer without work calls the server about once per Poll, and writes
// nothing.
func TestIdle(t *testing.T) {
	t.Parallel()
	srv := testserver.OwnRedis(t, testserver.RedisConfig{})
	b := connect(t, redisbroker.Config{Redis: options(srv), Poll: 200 * time.Millisecond, Logger: slog.New(slog.DiscardHandler)})
	q := declared(t, b, "q")
	s := subscribe(t, b, q, 10)
	testwait.Until(t, "that it waits", func() bool { return do(t, srv, "ZCARD", "swj:{"+redisNamespace(t, srv, q)+"}:h") == int64(1) })
	nothing(t, s)
	commands(t, srv)
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	if _, err := s.Receive(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("Receive: %v", err)
	}
	calls := commands(t, srv)
	if n := calls["evalsha"]; n > 15 {
		t.Errorf("%d scripts in 10 polls", n)
	}
	for _, write := range []string{"hset", "hdel", "zrem", "lpop", "rpush", "publish"} {
		if write != "lpop" && write != "zrem" && calls[write] > 0 { // these two find nothing
			t.Errorf("%s was called %d times while nothing happened", write, calls[write])
		}
	}
}

// redisNamespace returns the part in braces of a queue's keys.
func redisNamespace(t testing.TB, srv *testserver.Redis, q string) string {
	t.Helper()
	for _, k := range do(t, srv, "KEYS", "swj:{*."+q+"}:m").([]any) { //nolint:forcetypeassert // a test
		s, _ := k.(string)
		_, rest, _ := strings.Cut(s, "{")
		name, _, _ := strings.Cut(rest, "}")
		return name
	}
	t.Fatal("the queue has no key m")
	return ""
}

package hworkerbroker_test

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/broker/hworkerbroker"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/internal/testwait"
)

// foreign is another program on a queue. It knows only the published layout and sends the raw
// commands of hworker's description.
type foreign struct {
	t                              *testing.T
	rdb                            *redis.Client
	queue                          string
	jobs, progress, broken, failed string
}

func newForeign(t *testing.T) *foreign {
	t.Helper()
	o, err := redis.ParseURL(testserver.RequireRedis(t).URL())
	if err != nil {
		t.Fatal(err)
	}
	f := &foreign{t: t, rdb: redis.NewClient(o), queue: testserver.Namespace()}
	t.Cleanup(func() { _ = f.rdb.Close() })
	f.jobs, f.progress = "hworker-jobs-"+f.queue, "hworker-progress-"+f.queue
	f.broken, f.failed = "hworker-broken-"+f.queue, "hworker-failed-"+f.queue
	return f
}

func ok[T any](t *testing.T) func(v T, err error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// push queues payloads as another producer does.
func (f *foreign) push(payloads ...string) {
	f.t.Helper()
	for _, p := range payloads {
		ok[int64](f.t)(f.rdb.LPush(testwait.Long(f.t), f.jobs, p).Result())
	}
}

// take does the same as hworker's worker when it claims a job, in the words of its description.
func (f *foreign) take(now string) (string, bool) {
	f.t.Helper()
	const atomic = `
		local v = redis.call('RPOP', KEYS[1])
		if v then redis.call('HSET', KEYS[2], v, ARGV[1]) end
		return v`
	v, err := f.rdb.Eval(testwait.Long(f.t), atomic, []string{f.jobs, f.progress}, now).Text()
	if err == redis.Nil { //nolint:errorlint // as the client returns it
		return "", false
	}
	return ok[string](f.t)(v, err), true
}

// done is hworker's Success. It returns the number of removed entries.
func (f *foreign) done(payload string) int64 {
	f.t.Helper()
	return ok[int64](f.t)(f.rdb.HDel(testwait.Long(f.t), f.progress, payload).Result())
}

// retry is hworker's Retry.
func (f *foreign) retry(payload string) {
	f.t.Helper()
	const atomic = `
		if redis.call('HDEL', KEYS[2], ARGV[1]) == 1 then redis.call('LPUSH', KEYS[1], ARGV[1]) end
		return 0`
	ok[any](f.t)(f.rdb.Eval(testwait.Long(f.t), atomic, []string{f.jobs, f.progress}, payload).Result())
}

// list returns a list, beginning at the end that runs next.
func (f *foreign) list(key string) []string {
	f.t.Helper()
	l := ok[[]string](f.t)(f.rdb.LRange(testwait.Long(f.t), key, 0, -1).Result())
	for i, j := 0, len(l)-1; i < j; i, j = i+1, j-1 {
		l[i], l[j] = l[j], l[i]
	}
	return l
}

func (f *foreign) hash(key string) map[string]string {
	f.t.Helper()
	return ok[map[string]string](f.t)(f.rdb.HGetAll(testwait.Long(f.t), key).Result())
}

// keysThere returns how many of the four keys exist.
func (f *foreign) keysThere() int64 {
	f.t.Helper()
	return ok[int64](f.t)(f.rdb.Exists(testwait.Long(f.t), f.jobs, f.progress, f.broken, f.failed).Result())
}

// broker opens a Broker of this package and closes it at the end of the test.
func (f *foreign) broker(cfg hworkerbroker.Config) *hworkerbroker.Broker {
	f.t.Helper()
	b := open(f.t, testserver.RequireRedis(f.t).URL(), cfg)
	f.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
		defer cancel()
		if err := b.Close(ctx); err != nil {
			f.t.Errorf("Close: %v", err)
		}
	})
	return b
}

func (f *foreign) subscribe(b *hworkerbroker.Broker, prefetch int) broker.Subscription {
	f.t.Helper()
	return ok[broker.Subscription](f.t)(b.Subscribe(testwait.Long(f.t), f.queue, broker.SubscribeOptions{Prefetch: prefetch}))
}

func (f *foreign) receive(s broker.Subscription) broker.Delivery {
	f.t.Helper()
	return ok[broker.Delivery](f.t)(s.Receive(testwait.Long(f.t)))
}

// eventually polls until cond is true.
func (f *foreign) eventually(what string, cond func() bool) {
	f.t.Helper()
	ctx := testwait.Long(f.t)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !cond() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			f.t.Fatalf("never happened: %s", what)
		}
	}
}

// logBook stores the log.
type logBook struct {
	mu  sync.Mutex
	txt strings.Builder
}

func (l *logBook) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

func (l *logBook) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.txt.Write(p)
}

func (l *logBook) has(s string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Contains(l.txt.String(), s)
}

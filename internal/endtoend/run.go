package endtoend

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/middleware"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/task"
)

type pair struct{ A, B int }

var (
	add  = task.New[pair, int]("add")
	fail = task.New[string, int]("fail")
	work = task.New[int, int]("work")
)

var errBroken = errors.New("the thing is broken")

func testTypedResult(t *testing.T, open Open) {
	r := newRoad(t, open)
	handle(r, add, func(_ context.Context, p pair) (int, error) { return p.A + p.B, nil })
	r.start()
	f := submit(r, add, pair{1, 2})
	want(r, f, 3)
	want(r, f, 3) // a future gives the same answer again
	state, err := f.State(r.ctx())
	if err != nil || state != task.StateSucceeded {
		t.Fatalf("state is %q, %v", state, err)
	}
	select {
	case <-f.Done():
	default:
		t.Fatal("Done is open although the result is known")
	}
}

func testFailure(t *testing.T, open Open) {
	r := newRoad(t, open)
	runs := atomic.Int64{}
	handle(r, fail, func(_ context.Context, why string) (int, error) {
		runs.Add(1)
		return 0, fmt.Errorf("%s: %w", why, errBroken)
	})
	r.start()
	remote := failure(r, submit(r, fail, "today"), nil)
	if remote.Message != "today: the thing is broken" || remote.Type != "errors.errorString" {
		t.Fatalf("remote error is %+v", remote)
	}
	if n := runs.Load(); n != 1 {
		t.Fatalf("an error that asks for no retry was run %d times", n)
	}
	long := failure(r, submit(r, fail, strings.Repeat("x\xff", 100_000)), nil)
	if len(long.Message) > task.MaxErrorText || strings.ToValidUTF8(long.Message, "") != long.Message {
		t.Fatalf("an error text of %d bytes came through, or one that is not UTF-8", len(long.Message))
	}
}

func testBadArgs(t *testing.T, open Open) {
	r := newRoad(t, open)
	handle(r, add, func(_ context.Context, p pair) (int, error) { return p.A + p.B, nil })
	r.start()
	wrong := task.New[string, int]("add")
	wantError(r, submit(r, wrong, "not a pair"), task.ErrBadArgs)
	want(r, submit(r, add, pair{2, 2}), 4)
}

type credentials struct {
	User     string
	Password string `task:"secret"`
}

func testPanic(t *testing.T, open Open) {
	r := newRoad(t, open)
	handle(r, fail, func(_ context.Context, how string) (int, error) {
		switch how {
		case "nil":
			var nothing any
			panic(nothing) //nolint:govet // what a handler might do
		case "secret":
			panic(&credentials{"me", "hunter2"})
		}
		panic("boom " + how)
	})
	handle(r, add, func(_ context.Context, p pair) (int, error) { return p.A + p.B, nil })
	r.start()
	remote := failure(r, submit(r, fail, "loud"), task.ErrPanic)
	if !strings.Contains(remote.Message, "boom loud") || !strings.Contains(remote.Stack, "endtoend.testPanic") {
		t.Fatalf("the panic came back as %q with stack %.200q", remote.Message, remote.Stack)
	}
	wantError(r, submit(r, fail, "nil"), task.ErrPanic)
	secret := failure(r, submit(r, fail, "secret"), task.ErrPanic)
	if strings.Contains(secret.Message+secret.Stack+r.log.String(), "hunter2") {
		t.Fatalf("a secret field came back: %q", secret.Message)
	}
	want(r, submit(r, add, pair{1, 1}), 2)
}

func testGoexit(t *testing.T, open Open) {
	r := newRoad(t, open, func(_ *producer.Config, c *consumer.Config) {
		c.Queues[queueName] = consumer.QueueConfig{Workers: 1}
	})
	handle(r, fail, func(context.Context, string) (int, error) {
		runtime.Goexit()
		return 0, nil
	})
	handle(r, add, func(_ context.Context, p pair) (int, error) { return p.A + p.B, nil })
	r.start()
	wantError(r, submit(r, fail, ""), task.ErrPanic)
	wantError(r, submit(r, fail, "", task.WithTimeLimit(time.Minute)), task.ErrPanic)
	want(r, submit(r, add, pair{1, 1}), 2) // the only worker was replaced
}

func testRequestInContext(t *testing.T, open Open) {
	r := newRoad(t, open)
	seen := make(chan task.Request, 1)
	handle(r, add, func(ctx context.Context, p pair) (int, error) {
		req, ok := task.FromContext(ctx)
		if !ok {
			return 0, errors.New("no request in the context")
		}
		seen <- *req
		return 0, nil
	})
	r.start()
	want(r, submit(r, add, pair{}, task.WithID("my-id"), task.WithHeader("tenant", "blue"), task.WithCorrelation("c-7")), 0)
	req := <-seen
	if req.ID != "my-id" || req.Name != "add" || req.Headers["tenant"] != "blue" || req.Correlation != "c-7" || req.Queue != queueName ||
		req.Retries != 0 || req.Deliveries != 1 || req.Origin != r.producer.NodeID() || req.NodeID != r.consumer.NodeID() || req.StartedAt.IsZero() {
		t.Fatalf("the handler saw %+v with envelope %+v", req, *req.Envelope)
	}
	if _, ok := task.FromContext(t.Context()); ok {
		t.Fatal("there is a request outside a handler")
	}
}

// testMetadataPrecedence: the order is static < consumer < definition < call, key by key. An
// explicit zero overrides (S13).
func testMetadataPrecedence(t *testing.T, open Open) {
	r := newRoad(t, open, func(p *producer.Config, c *consumer.Config) {
		p.Defaults = task.Metadata{MaxRetries: task.Set(1), RetryDelay: task.Set(time.Hour), TimeLimit: task.Set(time.Hour), SoftTimeLimit: task.Set(time.Hour)}
		q := c.Queues[queueName]
		q.Meta = task.Metadata{MaxRetries: task.Set(2), RetryDelay: task.Set(2 * time.Hour), TimeLimit: task.Set(2 * time.Hour)}
		c.Queues[queueName] = q
	})
	def := task.New[pair, int]("add", task.WithMaxRetries(3), task.WithRetryDelay(3*time.Hour))
	seen := make(chan task.Metadata, 1)
	handle(r, def, func(ctx context.Context, p pair) (int, error) {
		req, _ := task.FromContext(ctx)
		seen <- *req.Effective
		return 0, nil
	})
	r.start()
	want(r, submit(r, def, pair{}, task.WithMaxRetries(0)), 0)
	got := <-seen
	if n, ok := got.MaxRetries.Get(); !ok || n != 0 {
		t.Errorf("max_retries is %d, %t; an explicit 0 at the call wins", n, ok)
	}
	for name, d := range map[string][2]time.Duration{
		"retry_delay (definition)":   {got.RetryDelay.Or(0), 3 * time.Hour},
		"time_limit (consumer)":      {got.TimeLimit.Or(0), 2 * time.Hour},
		"soft_time_limit (producer)": {got.SoftTimeLimit.Or(0), time.Hour},
	} {
		if d[0] != d[1] {
			t.Errorf("%s is %s, want %s", name, d[0], d[1])
		}
	}
}

func testIgnoreResult(t *testing.T, open Open) {
	r := newRoad(t, open)
	ran := make(chan struct{}, 1)
	handle(r, fail, func(context.Context, string) (int, error) {
		ran <- struct{}{}
		return 7, errBroken
	})
	r.start()
	f := submit(r, fail, "", task.WithIgnoreResult(true))
	want(r, f, 0)
	if s, err := f.State(r.ctx()); err != nil || s != task.StateSucceeded {
		t.Fatalf("state %q, %v", s, err)
	}
	<-ran
}

// testSubmitAll: the tasks are more than one batch.
func testSubmitAll(t *testing.T, open Open) {
	r := newRoad(t, open)
	handle(r, add, func(_ context.Context, p pair) (int, error) { return p.A + p.B, nil })
	r.start()
	want(r, submit(r, add, pair{0, 0}), 0) // the consumer now listens
	const n = 700
	calls := make([]task.Call, n)
	for i := range calls {
		calls[i] = add.Call(pair{i, i})
	}
	calls[17].Name = "bad name"
	pending, err := r.producer.SubmitAll(r.ctx(), calls)
	be, ok := errors.AsType[*broker.BatchError](err)
	if !ok || !errors.Is(be.Errs[17], task.ErrBadName) {
		t.Fatalf("one task of %d has a bad name, the error is %v", n, err)
	}
	for i, p := range pending {
		if i == 17 {
			if p != nil {
				t.Fatal("the refused task has a handle")
			}
			continue
		}
		if be.Errs[i] != nil {
			t.Fatalf("task %d: %v", i, be.Errs[i])
		}
		want(r, task.FutureOf[int](p), 2*i)
	}
}

func testNamesAreChecked(t *testing.T, open Open) {
	r := newRoad(t, open)
	for _, name := range []string{"", "../../bin/sh", "a b", "%2e", "a\x00b", "\u202eevil", strings.Repeat("n", 10_000), "-x", ".x"} {
		if _, err := r.producer.Submit(r.ctx(), task.Call{Name: name}); !errors.Is(err, task.ErrBadName) {
			t.Errorf("task name %.20q: %v", name, err)
		}
		if _, err := r.producer.Submit(r.ctx(), task.Call{Name: "ok", Meta: task.Metadata{Queue: task.Set(name)}}); !errors.Is(err, task.ErrBadName) {
			t.Errorf("queue name %.20q: %v", name, err)
		}
	}
	if _, err := r.producer.Submit(r.ctx(), task.Call{Name: "ok", ID: "has blank"}); !errors.Is(err, task.ErrBadID) {
		t.Errorf("id with a blank: %v", err)
	}
	if _, err := r.producer.Submit(r.ctx(), add.Call(pair{}, task.WithPriority(1<<31))); !errors.Is(err, task.ErrBadMetadata) {
		t.Errorf("priority 2^31: %v", err)
	}
	if _, err := r.producer.Submit(r.ctx(), add.Call(pair{}, task.WithPriority(1))); !errors.Is(err, broker.ErrUnsupported) {
		t.Errorf("a priority on a queue without levels: %v", err)
	}
}

func testTooLarge(t *testing.T, open Open) {
	r := newRoad(t, open, func(p *producer.Config, _ *consumer.Config) { p.Wire.MaxBody = 10_000 })
	blob := task.New[[]byte, int]("blob")
	handle(r, blob, func(_ context.Context, b []byte) (int, error) { return len(b), nil })
	r.start()
	want(r, submit(r, blob, make([]byte, 7_000)), 7_000) // base64 adds a third in some formats
	if _, err := r.producer.Submit(r.ctx(), blob.Call(make([]byte, 10_000))); !errors.Is(err, broker.ErrTooLarge) {
		t.Fatalf("a body over the limit: %v", err)
	}
}

func testSendMiddleware(t *testing.T, open Open) {
	veto := errors.New("not today")
	r := newRoad(t, open, func(p *producer.Config, _ *consumer.Config) {
		p.Middleware = []middleware.SendMiddleware{func(next middleware.Sender) middleware.Sender {
			return func(ctx context.Context, queue string, e *task.Envelope) error {
				switch e.Headers["do"] {
				case "veto":
					return veto
				case "drop":
					return nil
				}
				e.Headers = map[string]string{"seen": "yes"}
				return next(ctx, queue, e)
			}
		}}
	})
	header := task.New[int, string]("header")
	handle(r, header, func(ctx context.Context, _ int) (string, error) {
		req, _ := task.FromContext(ctx)
		return req.Headers["seen"], nil
	})
	r.start()
	want(r, submit(r, header, 0), "yes")
	if _, err := r.producer.Submit(r.ctx(), header.Call(0, task.WithHeader("do", "veto"))); !errors.Is(err, veto) {
		t.Fatalf("a veto came back as %v", err)
	}
	if _, err := r.producer.Submit(r.ctx(), header.Call(0, task.WithHeader("do", "drop"))); !errors.Is(err, producer.ErrNotSent) {
		t.Fatalf("a dropped task came back as %v", err)
	}
}

func testNoResultStore(t *testing.T, open Open) {
	r := newRoad(t, open, func(p *producer.Config, _ *consumer.Config) {
		closing := p.Results
		t.Cleanup(func() { _ = closing.Close(context.Background()) })
	})
	p, err := producer.New(producer.Config{Broker: r.broker, Router: queueRouter{}})
	if err != nil {
		t.Fatal(err)
	}
	ran := make(chan struct{}, 1)
	handle(r, add, func(context.Context, pair) (int, error) { ran <- struct{}{}; return 1, nil })
	r.start()
	submit(r, add, pair{}) // the consumer now listens
	<-ran
	f, err := add.Submit(r.ctx(), p, pair{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Get(r.ctx()); !errors.Is(err, task.ErrNoResult) {
		t.Fatalf("a future without a store gives %v", err)
	}
	<-ran
	if err := p.Close(r.ctx()); err != nil {
		t.Fatal(err)
	}
	if _, err := add.Submit(r.ctx(), p, pair{}); !errors.Is(err, producer.ErrClosed) {
		t.Fatalf("a closed producer: %v", err)
	}
}

func testTimeLimit(t *testing.T, open Open) {
	r := newRoad(t, open)
	release := make(chan struct{})
	t.Cleanup(func() { close(release) })
	handle(r, work, func(ctx context.Context, how int) (int, error) {
		switch how {
		case 0: // obeys its context
			<-ctx.Done()
			return 0, context.Cause(ctx)
		case 1: // ignores its context
			<-release
		}
		return how, nil
	})
	r.start()
	wantError(r, submit(r, work, 0, task.WithSoftTimeLimit(20*time.Millisecond)), task.ErrSoftTimeLimit)
	wantError(r, submit(r, work, 0, task.WithTimeLimit(20*time.Millisecond)), task.ErrTimeLimit)
	wantError(r, submit(r, work, 1, task.WithTimeLimit(20*time.Millisecond)), task.ErrTimeLimit)
	want(r, submit(r, work, 2, task.WithTimeLimit(time.Minute), task.WithSoftTimeLimit(time.Minute)), 2)
}

// testStuckHandlers: with up to [consumer.MaxStuck] handlers that ignore their context, the only
// worker continues with the next task. Each stuck handler is reported, and it is counted until it
// returns (S20, fault 24).
func testStuckHandlers(t *testing.T, open Open) {
	const stuck = 5
	m := new(middleware.Metrics)
	r := newRoad(t, open, func(_ *producer.Config, c *consumer.Config) {
		c.Metrics = m
		c.Queues[queueName] = consumer.QueueConfig{Workers: 1, Prefetch: 8}
	})
	release := make(chan struct{})
	defer close(release)
	handle(r, work, func(_ context.Context, i int) (int, error) {
		if i < 0 {
			<-release
		}
		return i, nil
	})
	r.start()
	for range stuck {
		wantError(r, submit(r, work, -1, task.WithTimeLimit(20*time.Millisecond)), task.ErrTimeLimit)
	}
	want(r, submit(r, work, 5), 5)
	r.eventually("the stuck handlers are counted", func() bool { return m.Stuck.Count() == stuck && r.consumer.Stats().Stuck == stuck })
	if n := strings.Count(r.log.String(), "handler runs beyond its hard time limit"); n != stuck {
		t.Errorf("%d of %d stuck handlers were told", n, stuck)
	}
	for range stuck {
		release <- struct{}{}
	}
	r.eventually("handlers that came back are counted off", func() bool { return m.Stuck.Count() == 0 && r.consumer.Stats().Stuck == 0 })
}

// testRateLimit (S19): tasks start at their rate, with a burst of at most the tasks of 100 ms. Each
// task is put back at most once.
func testRateLimit(t *testing.T, open Open) {
	m := new(middleware.Metrics)
	r := newRoad(t, open, func(_ *producer.Config, c *consumer.Config) { c.Metrics = m })
	var mu sync.Mutex
	var starts []time.Time
	handle(r, work, func(_ context.Context, i int) (int, error) {
		mu.Lock()
		starts = append(starts, time.Now())
		mu.Unlock()
		return i, nil
	})
	r.start()
	limited := work.With(task.WithRateLimit("20/s"))
	begin := time.Now() // the first start may be recorded late
	var fs []*task.Future[int]
	for i := range 26 {
		if r.h.NoQueues && i > 0 {
			break // the submitter itself runs them one after another
		}
		fs = append(fs, submit(r, limited, i))
	}
	for i, f := range fs {
		want(r, f, i)
	}
	if r.h.NoQueues {
		return
	}
	mu.Lock()
	defer mu.Unlock()
	if took := starts[len(starts)-1].Sub(begin); took < 1200*time.Millisecond {
		t.Errorf("26 runs at 20/s with a burst of 2 took %s, want at least 1.2 s", took)
	}
	if n := m.Received.Count(); n > 2*26 {
		t.Errorf("26 tasks were received %d times", n)
	}
}

// testManyOnce: without faults every task runs exactly once (G2).
func testManyOnce(t *testing.T, open Open) {
	m := new(middleware.Metrics)
	r := newRoad(t, open, func(p *producer.Config, c *consumer.Config) { p.Metrics, c.Metrics = m, m })
	const n = 300
	counts := make([]atomic.Int64, n)
	handle(r, work, func(_ context.Context, i int) (int, error) { counts[i].Add(1); return i, nil })
	r.start()
	fs := make([]*task.Future[int], n)
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := g; i < n; i += 8 {
				fs[i] = submit(r, work, i)
			}
		})
	}
	wg.Wait()
	for i, f := range fs {
		want(r, f, i)
	}
	if err := r.running.stop(); err != nil {
		t.Fatalf("Run: %v", err)
	}
	for i := range counts {
		if c := counts[i].Load(); c != 1 {
			t.Fatalf("task %d ran %d times", i, c)
		}
	}
	if m.Sent.Count() != n || m.Received.Count() != n || m.Succeeded.Count() != n || m.Active.Count() != 0 {
		t.Fatalf("sent %d, received %d, succeeded %d, active %d; want %d and none active",
			m.Sent.Count(), m.Received.Count(), m.Succeeded.Count(), m.Active.Count(), n)
	}
}

func testResultTooLarge(t *testing.T, open Open) {
	r := newRoad(t, open, func(_ *producer.Config, c *consumer.Config) { c.Tuning.MaxResult = 1000 })
	blob := task.New[int, []byte]("blob")
	handle(r, blob, func(_ context.Context, n int) ([]byte, error) { return make([]byte, n), nil })
	r.start()
	remote := failure(r, submit(r, blob, 2000), task.ErrBadResult)
	if !strings.Contains(remote.Message, "limit 1000") {
		t.Fatalf("the error does not name the limit: %q", remote.Message)
	}
	if got, err := submit(r, blob, 900).Get(r.ctx()); err != nil || len(got) != 900 {
		t.Fatalf("a result below the limit: %d bytes, %v", len(got), err)
	}
	unwritable := task.New[int, any]("chan")
	handle(r, unwritable, func(context.Context, int) (any, error) { return make(chan int), nil })
	wantError(r, submit(r, unwritable, 1), task.ErrBadResult)
}

// testSameIDTwice: submitting an id again is safe. Both futures get the same result (fault 29).
func testSameIDTwice(t *testing.T, open Open) {
	r := newRoad(t, open)
	handle(r, add, func(_ context.Context, p pair) (int, error) { return p.A + p.B, nil })
	r.start()
	f := submit(r, add, pair{1, 2}, task.WithID("twice"))
	g := submit(r, add, pair{1, 2}, task.WithID("twice"))
	want(r, f, 3)
	want(r, g, 3)
}

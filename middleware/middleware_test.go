package middleware_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/swarmiji/swarmiji/internal/guard"
	"github.com/swarmiji/swarmiji/middleware"
	"github.com/swarmiji/swarmiji/task"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func request(meta task.Metadata) *task.Request {
	return &task.Request{Envelope: &task.Envelope{ID: "id", Name: "t"}, Effective: &meta, Queue: "q"}
}

func handler(fn func(context.Context) (any, error)) task.Handler {
	return task.HandlerFunc(func(ctx context.Context, _ *task.Request) (any, error) { return fn(ctx) })
}

func TestRetryLeavesVerdictsAlone(t *testing.T) {
	broken := errors.New("broken")
	mw := middleware.Retry(middleware.RetryConfig{Backoff: task.Backoff{Strategy: task.BackoffConstant}})
	for _, c := range []struct {
		err   error
		retry bool
	}{
		{broken, true}, {task.Fail(broken), false}, {task.Snooze(1), false}, {task.ErrBadArgs, false}, {nil, false},
	} {
		_, err := mw(handler(func(context.Context) (any, error) { return nil, c.err })).Handle(t.Context(), request(task.Metadata{}))
		v, ok := errors.AsType[*task.RetryVerdict](err)
		if ok != c.retry || ok && v.Delay.Or(0) != time.Second {
			t.Errorf("%v became %v", c.err, err)
		}
	}
}

func TestRecover(t *testing.T) {
	h := middleware.Recover()(handler(func(context.Context) (any, error) { panic("boom") }))
	_, err := h.Handle(t.Context(), request(task.Metadata{}))
	p, ok := errors.AsType[*task.PanicError](err)
	if !ok || !errors.Is(err, task.ErrPanic) || p.Text != "boom" || !strings.Contains(p.Stack(), "TestRecover") {
		t.Fatalf("%v", err)
	}
}

func TestTimeLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var stuck int
		mw := middleware.TimeLimit(func(d int) { stuck += d })
		release := make(chan struct{})
		begin := time.Now()
		_, err := mw(handler(func(ctx context.Context) (any, error) {
			<-release // ignores its context
			return nil, nil
		})).Handle(t.Context(), request(task.Metadata{TimeLimit: task.Set(time.Minute)}))
		if !errors.Is(err, task.ErrTimeLimit) || time.Since(begin) != time.Minute+guard.Grace {
			t.Fatalf("hard limit: %v after %s", err, time.Since(begin))
		}
		if stuck != 1 {
			t.Fatalf("%d handlers are stuck, want 1", stuck)
		}
		close(release)
		synctest.Wait()
		if stuck != 0 {
			t.Fatalf("%d handlers are stuck after the last returned", stuck)
		}
		begin = time.Now()
		_, err = mw(handler(func(ctx context.Context) (any, error) {
			<-ctx.Done()
			return nil, context.Cause(ctx)
		})).Handle(t.Context(), request(task.Metadata{SoftTimeLimit: task.Set(time.Second), TimeLimit: task.Set(time.Minute)}))
		if !errors.Is(err, task.ErrSoftTimeLimit) || time.Since(begin) != time.Second {
			t.Fatalf("soft limit: %v after %s", err, time.Since(begin))
		}
		_, err = mw(handler(func(context.Context) (any, error) { panic("inside") })).Handle(t.Context(), request(task.Metadata{TimeLimit: task.Set(time.Minute)}))
		if !errors.Is(err, task.ErrPanic) {
			t.Fatalf("a panic inside the limit: %v", err)
		}
	})
}

func TestLogSaysWhatBecameOfARun(t *testing.T) {
	var buf bytes.Buffer
	l := slog.New(slog.NewTextHandler(&buf, &slog.HandlerOptions{Level: slog.LevelDebug}))
	policy := task.RetryPolicy{On: []string{"shop.Busy"}}.String()
	for _, c := range []struct {
		err  error
		want string
	}{
		{nil, "level=DEBUG msg=\"task succeeded\" task_id=id task=t queue=q attempt=1"},
		{errors.New("no\x1b[31m"), "level=WARN msg=\"task failed\""},
		{errors.New("no"), "retry=false"},
		{task.Retry(nil), "level=INFO msg=\"task ended with a verdict\""},
		{task.Retry(nil), "retry=true"},
		{task.Retry(nil, task.AtMost(0)), "retry=false"},
		{task.Named("shop.Busy", errors.New("busy")), "retry=true"}, // by its policy
		{task.Snooze(time.Second), "retry=false"},
	} {
		buf.Reset()
		_, err := middleware.Log(l)(handler(func(context.Context) (any, error) { return 1, c.err })).Handle(t.Context(), request(task.Metadata{Retry: task.Set(policy)}))
		if !errors.Is(err, c.err) || !strings.Contains(buf.String(), c.want) || strings.Contains(buf.String(), "\x1b") {
			t.Errorf("%v: logged %q", c.err, buf.String())
		}
	}
}

// TestHistogram shows that count, sum, minimum and maximum are exact. A percentile is never too
// low, and at most one sixteenth too high. The standard deviation is off by at most a thirty-second
// part of the largest value.
func TestHistogram(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		vs := rapid.SliceOfN(rapid.Int64Range(0, math.MaxInt32), 1, 200).Draw(t, "values")
		h := new(middleware.Histogram)
		var sum int64
		for _, v := range vs {
			h.Update(v)
			sum += v
		}
		slices.Sort(vs)
		s := h.Snapshot()
		if s.Count() != int64(len(vs)) || s.Sum() != sum || s.Min() != vs[0] || s.Max() != vs[len(vs)-1] {
			t.Fatalf("count %d sum %d min %d max %d of %v", s.Count(), s.Sum(), s.Min(), s.Max(), vs)
		}
		for _, p := range []float64{0.01, 0.5, 0.9, 0.99, 1} {
			exact := float64(vs[max(0, int(math.Ceil(p*float64(len(vs))))-1)])
			if got := s.Percentile(p); got < exact || got > exact*17/16+1 {
				t.Fatalf("percentile %g is %g, exact %g", p, got, exact)
			}
		}
		if mean := float64(sum) / float64(len(vs)); math.Abs(s.Mean()-mean) > 1e-6*mean+1e-9 {
			t.Fatalf("mean %g, want %g", s.Mean(), mean)
		}
		var squares float64
		for _, v := range vs {
			d := float64(v) - float64(sum)/float64(len(vs))
			squares += d * d
		}
		exact := math.Sqrt(squares / float64(len(vs)))
		if off := math.Abs(s.StdDev() - exact); off > float64(s.Max())/32+1e-9 {
			t.Fatalf("standard deviation %g, exact %g, of %v", s.StdDev(), exact, vs)
		}
	})
	h := new(middleware.Histogram)
	h.Update(math.MaxInt64)
	h.Update(-5)
	if h.Min() != 0 || h.Max() != math.MaxInt64 || h.Percentile(1) != math.MaxInt64 {
		t.Fatalf("at the borders: min %d, max %d, p100 %g", h.Min(), h.Max(), h.Percentile(1))
	}
	h.Clear()
	if h.Count() != 0 || h.Min() != 0 || h.Max() != 0 || h.Percentile(0.5) != 0 || h.StdDev() != 0 {
		t.Fatal("a cleared histogram remembers")
	}
}

// TestZeroMetrics shows that the zero value of Metrics counts, and that Waiting is the sum of all
// queues whose length is known.
func TestZeroMetrics(t *testing.T) {
	var m middleware.Metrics
	var told []string
	m.OnQueue = func(queue string, ready, delayed, dead int) {
		told = append(told, fmt.Sprintf("%s %d %d %d", queue, ready, delayed, dead))
	}
	m.Active.Inc(3)
	m.Active.Dec(1)
	m.Runtime.Update(7)
	m.SetQueue("a", 4, -1, 2)
	m.SetQueue("b", 5, 1, 0)
	if m.Active.Count() != 2 || m.Runtime.Sum() != 7 || m.Runtime.Min() != 7 || m.Waiting.Value() != 9 {
		t.Errorf("%d active, sum %d, minimum %d, %d wait", m.Active.Count(), m.Runtime.Sum(), m.Runtime.Min(), m.Waiting.Value())
	}
	m.SetQueue("a", -1, 1, 2)
	m.ForgetQueue("b")
	if m.Waiting.Value() != 0 || !slices.Equal(told, []string{"a 4 -1 2", "b 5 1 0", "a -1 1 2", "b -1 -1 -1"}) {
		t.Errorf("%d wait; told %q", m.Waiting.Value(), told)
	}
}

func TestChainSend(t *testing.T) {
	var order []string
	mw := func(name string) middleware.SendMiddleware {
		return func(next middleware.Sender) middleware.Sender {
			return func(ctx context.Context, queue string, e *task.Envelope) error {
				order = append(order, name)
				return next(ctx, queue, e)
			}
		}
	}
	s := middleware.ChainSend(func(context.Context, string, *task.Envelope) error { return nil }, mw("a"), mw("b"))
	if err := s(t.Context(), "q", nil); err != nil || !slices.Equal(order, []string{"a", "b"}) {
		t.Fatal(order, err)
	}
}

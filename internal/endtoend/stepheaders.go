package endtoend

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/revoke"
	"github.com/swarmiji/swarmiji/serializer"
	"github.com/swarmiji/swarmiji/task"
)

// seenHeaders holds, for each task name, the headers and the correlation with which it ran.
type seenHeaders struct {
	mu   sync.Mutex
	runs map[string][]string
}

// watch is a middleware that fills s.
func (s *seenHeaders) watch(next task.Handler) task.Handler {
	return task.HandlerFunc(func(ctx context.Context, q *task.Request) (any, error) {
		var kv []string
		for k, v := range q.Headers {
			kv = append(kv, k+"="+v)
		}
		slices.Sort(kv)
		s.mu.Lock()
		s.runs[q.Name] = append(s.runs[q.Name], strings.Join(kv, " ")+" c="+q.Correlation)
		s.mu.Unlock()
		return next.Handle(ctx, q)
	})
}

func newSeenHeaders() *seenHeaders { return &seenHeaders{runs: make(map[string][]string)} }

// use makes s watch every task of the consumer.
func (s *seenHeaders) use(_ *producer.Config, c *consumer.Config) {
	c.Middleware = append(slices.Clip(c.Middleware), s.watch)
}

// testStepHeaders: a step runs with its own headers and correlation over those of Submit, in every
// form of a workflow. Other steps do not get them.
func testStepHeaders(t *testing.T, open Open) {
	h := func(v string) task.Option { return task.WithHeader("h", v) }
	submit := []task.Option{h("submit"), task.WithHeader("all", "1"), task.WithCorrelation("cs")}
	const all = "all=1 h=submit c=cs"
	okay := task.New[int, int]("okay")
	failed := task.New[task.Failure, int]("failed")
	defined := task.New[int, int]("defined", h("definition"), task.WithHeader("only", "x"), task.WithCorrelation("own"))
	for _, c := range []struct {
		name string
		run  func(r *road) error
		want map[string][]string
	}{
		{"chain", func(r *road) error {
			_, err := submitWork(r, task.Chain3(defined, inc, text.With(h("last"))), 1, submit...).Get(r.ctx())
			return err
		}, map[string][]string{
			"defined": {"all=1 h=definition only=x c=own"}, "inc": {all}, "text": {"all=1 h=last c=cs"},
		}},
		{"chain without headers at Submit", func(r *road) error {
			_, err := submitWork(r, task.Chain3(defined, inc, text), 1).Get(r.ctx())
			return err
		}, map[string][]string{"defined": {"h=definition only=x c=own"}, "inc": {" c="}, "text": {" c="}}},
		{"bound", func(r *road) error {
			_, err := submitWork(r, task.Chain(inc.Bound(1, h("bound")), task.Fixed[int](text, 2, task.WithHeader("fixed", "1"))), task.None{}, submit...).Get(r.ctx())
			return err
		}, map[string][]string{"inc": {"all=1 h=bound c=cs"}, "text": {"all=1 fixed=1 h=submit c=cs"}}},
		{"map", func(r *road) error {
			_, err := submitWork(r, task.Chain3(count, task.Map(defined), sum.With(h("sum"))), 2, submit...).Get(r.ctx())
			return err
		}, map[string][]string{
			"count": {all}, "defined": {"all=1 h=definition only=x c=own", "all=1 h=definition only=x c=own"}, "sum": {"all=1 h=sum c=cs"},
		}},
		{"empty map", func(r *road) error {
			_, err := submitWork(r, task.Chain3(count.With(h("count")), task.Map(defined), sum), 0, submit...).Get(r.ctx())
			return err
		}, map[string][]string{"count": {"all=1 h=count c=cs"}, "sum": {all}}},
		{"chord", func(r *road) error {
			_, err := submitWork(r, task.Chord(task.Group(task.Chain(defined, inc.With(h("inc"))), okay), sum), 1, submit...).Get(r.ctx())
			return err
		}, map[string][]string{
			"defined": {"all=1 h=definition only=x c=own"}, "inc": {"all=1 h=inc c=cs"}, "okay": {all}, "sum": {all},
		}},
		{"group without callback", func(r *road) error {
			_, err := submitWork(r, task.Group(inc.With(h("inc")), defined), 1, submit...).Get(r.ctx())
			return err
		}, map[string][]string{"inc": {"all=1 h=inc c=cs"}, "defined": {"all=1 h=definition only=x c=own"}}},
		{"stream", func(r *road) error {
			s, err := task.Stream(r.ctx(), r.producer, slices.Values([]int{1}), defined, task.New[task.Members[int], int]("members"), submit...)
			if err == nil {
				_, err = s.Get(r.ctx())
			}
			return err
		}, map[string][]string{"defined": {"all=1 h=definition only=x c=own"}, "members": {all}}},
		{"error task", func(r *road) error {
			_, err := submitWork(r, task.OnError(odd.With(h("odd"), task.WithMaxRetries(0)), failed.With(task.WithHeader("alarm", "1"))), 2, submit...).Get(r.ctx())
			if err == nil {
				return errors.New("the workflow did not fail")
			}
			return nil
		}, map[string][]string{"odd": {"all=1 h=odd c=cs"}, "failed": {"alarm=1 all=1 h=submit c=cs"}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			seen := newSeenHeaders()
			r := newWorks(t, open, seen.use)
			handle(r, okay, func(_ context.Context, i int) (int, error) { return i, nil })
			handle(r, failed, func(context.Context, task.Failure) (int, error) { return 0, nil })
			handle(r, defined, func(_ context.Context, i int) (int, error) { return i, nil })
			handle(r, task.New[task.Members[int], int]("members"), func(_ context.Context, m task.Members[int]) (int, error) { return m.Size, nil })
			r.start()
			if r.h.NoQueues {
				r.listening = r.submit(add.Call(pair{1, 1})) != nil
			}
			if err := c.run(r); err != nil {
				t.Fatal(err)
			}
			r.eventually("all steps ran", func() bool {
				seen.mu.Lock()
				defer seen.mu.Unlock()
				for name, runs := range c.want {
					if len(seen.runs[name]) < len(runs) {
						return false
					}
				}
				return true
			})
			seen.mu.Lock()
			defer seen.mu.Unlock()
			delete(seen.runs, "add")
			if diff := cmp.Diff(c.want, seen.runs); diff != "" {
				t.Errorf("headers and correlation of the steps (-want +got):\n%s", diff)
			}
		})
	}
}

// testStepHeadersTooLarge: a step whose headers together with those of Submit exceed the limit is
// refused at Submit.
func testStepHeadersTooLarge(t *testing.T, open Open) {
	r := newWorks(t, open)
	large := strings.Repeat("v", serializer.MaxHeaderBytes*2/3)
	w := task.Chain(inc, inc.With(task.WithHeader("own", large)))
	if _, err := w.Submit(r.ctx(), r.producer, 1, task.WithHeader("all", large)); !errors.Is(err, serializer.ErrValue) {
		t.Fatalf("a step with too large headers: %v, want %v", err, serializer.ErrValue)
	}
}

// testRevokedSteps: a selector revokes a step by a header that only this step has.
func testRevokedSteps(t *testing.T, open Open) {
	v := newRevokable(t, open)
	handle(v.road, work, func(_ context.Context, i int) (int, error) { return i, nil })
	err := v.revoker.RevokeMatching(v.ctx(), revoke.Options{}, revoke.Selector{Header: "import", Value: "42"})
	if !errors.Is(err, revoke.ErrUnheard) {
		t.Fatalf("revoke by a selector while no consumer runs: %v", err)
	}
	v.start()
	run, err := task.Chain(work, work.With(task.WithHeader("import", "42"))).Submit(v.ctx(), v.producer, 1)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := task.FutureOf[int](run.Steps()[0]).Get(v.ctx()); n != 1 || err != nil {
		t.Errorf("the step without the header gave %d, %v", n, err)
	}
	wantError(v.road, run.Future, task.ErrRevoked)
}

package endtoend

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/capability"
	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/resultstore/memresults"
	"github.com/swarmiji/swarmiji/serializer"
	"github.com/swarmiji/swarmiji/task"
)

// The tasks of the workflows. odd fails for even numbers.
var (
	inc   = task.New[int, int]("inc")
	odd   = task.New[int, int]("odd")
	sum   = task.New[[]int, int]("sum")
	count = task.New[int, []int]("count")
	text  = task.New[int, string]("text")
)

var errEven = errors.New("even")

// newWorks is like newRoad with these tasks registered, and with a gatherer if the result store is
// not one.
func newWorks(t *testing.T, open Open, change ...func(*producer.Config, *consumer.Config)) *road {
	t.Helper()
	change = append([]func(*producer.Config, *consumer.Config){func(p *producer.Config, c *consumer.Config) {
		if resultstore.GathererOf(nil, p.Results) == nil {
			g := memresults.New(memresults.Config{})
			t.Cleanup(func() { _ = g.Close(context.Background()) })
			p.Gatherer, c.Gatherer = g, g
		}
	}}, change...)
	r := newRoad(t, open, change...)
	handle(r, inc, func(_ context.Context, i int) (int, error) { return i + 1, nil })
	handle(r, odd, func(_ context.Context, i int) (int, error) {
		if i%2 == 0 {
			return 0, fmt.Errorf("%d: %w", i, errEven)
		}
		return i, nil
	})
	handle(r, sum, func(_ context.Context, is []int) (int, error) {
		n := 0
		for _, i := range is {
			n += i
		}
		return n, nil
	})
	handle(r, count, func(_ context.Context, n int) ([]int, error) {
		is := make([]int, n)
		for i := range is {
			is[i] = i
		}
		return is, nil
	})
	handle(r, text, func(_ context.Context, i int) (string, error) { return fmt.Sprint("no ", i), nil })
	return r
}

// submitWork submits a workflow. With NoQueues it waits until the consumer listens.
func submitWork[A, R any](r *road, s task.Part[A, R], args A, opts ...task.Option) *task.Run[R] {
	r.t.Helper()
	if r.h.NoQueues && !r.listening { // a group that is sent too early may be sent in part
		r.listening = r.submit(inc.Call(1)) != nil
	}
	run, err := s.Part().Submit(r.ctx(), r.producer, args, opts...)
	if err != nil {
		r.t.Fatalf("submit: %v", err)
	}
	return run
}

// wantWork runs a workflow and compares its result.
func wantWork[A, R any](r *road, s task.Part[A, R], args A, value R) {
	r.t.Helper()
	run := submitWork(r, s, args)
	got, err := run.Get(r.ctx())
	if err != nil {
		r.t.Fatalf("result of the workflow: %v", err)
	}
	if diff := cmp.Diff(value, got); diff != "" {
		r.t.Fatalf("result of the workflow (-want +got):\n%s", diff)
	}
}

// wantEven runs a workflow that fails with the error of odd, and returns its run.
func wantEven[A, R any](r *road, s task.Part[A, R], args A, message string) *task.Run[R] {
	r.t.Helper()
	run := submitWork(r, s, args)
	if got := failure(r, run.Future, nil); got.Message != message {
		r.t.Fatalf("the workflow failed with %q, want %q", got.Message, message)
	}
	return run
}

// testChain: each step gets the result of the previous one, and each has a future (S63, S67).
func testChain(t *testing.T, open Open) {
	r := newWorks(t, open)
	r.start()
	run := submitWork(r, task.Chain3(inc, inc, text), 1, task.WithID("the-whole"), task.WithCorrelation("c"))
	if got, err := run.Get(r.ctx()); err != nil || got != "no 3" {
		t.Fatalf("the chain gave %q, %v", got, err)
	}
	steps := run.Steps()
	if len(steps) != 3 || steps[2].ID() != "the-whole" || run.ID() != "the-whole" {
		t.Fatalf("%d steps, the whole is %s", len(steps), run.ID())
	}
	for i, want := range []int{2, 3} {
		if got, err := task.FutureOf[int](steps[i]).Get(r.ctx()); err != nil || got != want {
			t.Fatalf("step %d gave %d, %v; want %d", i, got, err, want)
		}
	}
}

// testChainFails: the steps after a failed one do not run, and their futures fail with its error
// (S63). The error task gets the failure (S66).
func testChainFails(t *testing.T, open Open) {
	r := newWorks(t, open)
	failures, successes := make(chan task.Failure, 4), make(chan int, 4)
	onError, onSuccess := task.New[task.Failure, int]("on-error"), task.New[int, int]("on-success")
	handle(r, onError, func(_ context.Context, f task.Failure) (int, error) { failures <- f; return 0, nil })
	handle(r, onSuccess, func(_ context.Context, i int) (int, error) { successes <- i; return 0, nil })
	r.start()
	w := task.OnError(task.OnSuccess(task.Chain3(inc, odd, inc), onSuccess), onError)
	run := wantEven(r, w, 1, "2: even")
	for i, want := range []string{"2: even", "step odd: 2: even"} {
		if err := run.Steps()[i+1].Result(r.ctx(), nil); err == nil || err.Error() != want {
			t.Fatalf("the future of step %d: %v, want %s", i+1, err, want)
		}
	}
	select {
	case f := <-failures:
		if f.ID != run.Steps()[1].ID() || f.Message != "2: even" {
			t.Fatalf("the error task got %+v", f)
		}
	case <-r.ctx().Done():
		t.Fatal("the error task did not run")
	}
	wantWork(r, w, 2, 4)
	select {
	case i := <-successes:
		if i != 4 {
			t.Fatalf("the success task got %d", i)
		}
	case <-r.ctx().Done():
		t.Fatal("the success task did not run")
	}
	if len(failures)+len(successes) > 0 {
		t.Fatal("a task ran that had no reason to")
	}
}

// testStepIsRetried: the retry policy of a step travels in its link, and the failure after the last
// retry is final (S65).
func testStepIsRetried(t *testing.T, open Open) {
	r := newWorks(t, open)
	runs := atomic.Int64{}
	handle(r, work, func(_ context.Context, n int) (int, error) {
		if runs.Add(1) <= int64(n) {
			return 0, errBroken
		}
		return n, nil
	})
	r.start()
	policy := task.RetryPolicy{Backoff: task.Backoff{Strategy: task.BackoffExponential, Base: time.Millisecond, Factor: 1}}
	if r.h.NoTimes || r.h.NoQueues {
		policy = task.RetryPolicy{}
	}
	step := task.Chain(inc, work.With(task.WithRetry(policy), task.WithMaxRetries(3), task.WithRetryDelay(0)).Part())
	wantWork(r, task.Chain(step, inc), 2, 4)
	if n := runs.Load(); n != 4 {
		t.Fatalf("a step that fails three times ran %d times", n)
	}
	runs.Store(-100)
	wantEven(r, task.Chain(step, inc), 1000, errBroken.Error())
	if n := runs.Load(); n != -96 {
		t.Fatalf("a step that always fails ran %d times", n+100)
	}
}

// testStepArguments: steps get fixed arguments, a field, and the first element of a list (S63).
func testStepArguments(t *testing.T, open Open) {
	r := newWorks(t, open)
	handle(r, add, func(_ context.Context, p pair) (int, error) { return p.A + 10*p.B, nil })
	list := task.New[[]any, string]("list")
	handle(r, list, func(_ context.Context, args []any) (string, error) { return fmt.Sprint(args...), nil })
	r.start()
	wantWork(r, task.Chain(inc, task.Fixed[int](add, pair{3, 4})), 1, 43)
	wantWork(r, task.Chain(inc, task.Into[int](add, "B", pair{A: 5})), 1, 25)
	wantWork(r, task.Chain(text, task.Prepend[string](list, []any{"x", "y"})), 7, "no 7xy")
	wantWork(r, task.Into[int](add, "A", pair{B: 1}), 4, 14) // also for the first step
}

// testStepNumbers: whole numbers that float64 cannot hold pass unchanged through Into and Prepend,
// with any serializers of the two steps.
func testStepNumbers(t *testing.T, open Open) {
	const exact, most = 1<<53 + 1, math.MaxUint64
	type numbers struct{ Fed, Fixed uint64 }
	r := newWorks(t, open)
	same := task.New[uint64, uint64]("same")
	handle(r, same, func(_ context.Context, n uint64) (uint64, error) { return n, nil })
	both := task.New[map[string]any, string]("both")
	handle(r, both, func(ctx context.Context, _ map[string]any) (string, error) {
		req, _ := task.FromContext(ctx)
		var n numbers
		err := req.Bind(&n)
		return fmt.Sprint(n), err
	})
	list := task.New[[]any, string]("list")
	handle(r, list, func(ctx context.Context, _ []any) (string, error) {
		req, _ := task.FromContext(ctx)
		var n []uint64
		err := req.Bind(&n)
		return fmt.Sprint(n), err
	})
	r.start()
	for _, from := range []string{serializer.ContentMsgpack, serializer.ContentJSON} {
		for _, to := range []string{serializer.ContentMsgpack, serializer.ContentJSON} {
			first := same.With(task.WithSerializer(from)).Part()
			as := task.WithSerializer(to)
			wantWork(r, task.Chain(first, task.Into[uint64](both, "Fed", map[string]any{"Fixed": uint64(most)}, as)), exact, fmt.Sprint(numbers{exact, most}))
			wantWork(r, task.Chain(first, task.Into[uint64](both, "Fed", nil, as)), exact, fmt.Sprint(numbers{Fed: exact}))
			wantWork(r, task.Chain(first, task.Prepend[uint64](list, []any{uint64(most)}, as)), exact, fmt.Sprint([]uint64{exact, most}))
		}
	}
}

// testGroup: all members run, and the results are in the members' order (S68).
func testGroup(t *testing.T, open Open) {
	r := newWorks(t, open)
	r.start()
	g := task.Group(inc, task.Chain(inc, inc), inc)
	wantWork(r, g, 1, []int{2, 3, 2})
	run := submitWork(r, task.Group(inc.Bound(5), odd.Bound(7)), task.None{})
	if got, err := run.Get(r.ctx()); err != nil || !slices.Equal(got, []int{6, 7}) {
		t.Fatalf("the group gave %v, %v", got, err)
	}
	if got, err := task.FutureOf[int](run.Steps()[1]).Get(r.ctx()); err != nil || got != 7 {
		t.Fatalf("a member gave %d, %v", got, err)
	}
	wantWork(r, task.Map(inc), []int{5, 6, 7}, []int{6, 7, 8})
	wantWork(r, task.Map(inc), []int{}, []int{})
}

func testChord(t *testing.T, open Open) {
	r := newWorks(t, open)
	ids := make(chan task.ID, 100)
	each := task.New[[]int, int]("each")
	handle(r, each, func(ctx context.Context, is []int) (int, error) {
		req, _ := task.FromContext(ctx)
		ids <- req.ID
		return len(is), nil
	})
	r.start()
	wantWork(r, task.Chord(task.Group(inc, inc), sum), 1, 4)
	wantWork(r, task.Chain(count, task.Chain3(task.Map(inc), sum, inc)), 5, 16)
	run := submitWork(r, task.Chord(task.Map(inc), each), make([]int, 300))
	if got, err := run.Get(r.ctx()); err != nil || got != 300 {
		t.Fatalf("the callback of 300 members got %d, %v", got, err)
	}
	if n := len(ids); n != 1 || <-ids != run.ID() {
		t.Fatalf("the callback ran %d times", n)
	}
}

func testChordPolicies(t *testing.T, open Open) {
	r := newWorks(t, open)
	failures := make(chan task.Failure, 4)
	onError := task.New[task.Failure, int]("on-error")
	handle(r, onError, func(_ context.Context, f task.Failure) (int, error) { failures <- f; return 0, nil })
	shape := task.New[[]task.Settled[int], string]("shape")
	handle(r, shape, func(_ context.Context, ends []task.Settled[int]) (string, error) {
		s := ""
		for _, e := range ends {
			if e.Failure != nil {
				s += "(" + e.Failure.Message + ")"
			} else {
				s += fmt.Sprint(e.Value, " ")
			}
		}
		return s, nil
	})
	pages := task.New[task.Members[int], string]("pages")
	handle(r, pages, func(ctx context.Context, m task.Members[int]) (string, error) {
		s := fmt.Sprintf("%d/%d ", m.Failed, m.Size)
		for e, err := range m.All(ctx) {
			if err != nil {
				return "", err
			}
			s += fmt.Sprint(e.Value, e.Failure != nil, " ")
		}
		return s, nil
	})
	r.start()
	in := []int{1, 2, 3}
	g := task.Map(odd)
	wantEven(r, task.OnError(task.Chain3(g, sum, inc), onError), in, "2: even")
	select {
	case f := <-failures:
		if f.Message != "2: even" {
			t.Fatalf("the error task got %+v", f)
		}
	case <-r.ctx().Done():
		t.Fatal("the error task of a failed group did not run")
	}
	wantWork(r, task.Chain(g.IgnoreFailures(), sum), in, 4)
	wantWork(r, task.Chain(g.Collect(), shape), in, "1 (2: even)3 ")
	wantWork(r, task.Chain(g.Refer(), pages), in, "1/3 1 false 0 true 3 false ")
	wantWork(r, g.IgnoreFailures(), []int{2, 4}, []int{})
	if len(failures) > 0 {
		t.Fatal("the error task ran again")
	}
}

// testNestedWorkflow: groups in chains in groups, and chords in chords, work. A failure inside one
// fails the enclosing step.
func testNestedWorkflow(t *testing.T, open Open) {
	r := newWorks(t, open)
	r.start()
	inner := task.Chord(task.Group(inc, task.Chain(inc, inc)), sum) // 2n+3
	wantWork(r, task.Chain3(inc, task.Group(inner, inc, inner), sum), 1, 7+3+7)
	wantWork(r, task.Chain(task.Map(task.Chain3(count, task.Map(inc), sum)), sum), []int{1, 2, 0, 3}, 1+3+0+6)
	wantWork(r, task.Chain(task.Group(task.Group(inc, inc), task.Group(inc, inc)), task.Map(sum)), 1, []int{4, 4})
	broken := task.Chord(task.Group(odd, inc), sum)
	wantEven(r, task.Chain3(task.Group(inc, broken), sum, inc), 4, "4: even")
	wantEven(r, task.Chain(task.Map(task.Chain3(count, task.Map(odd), sum)), sum), []int{1, 2}, "0: even")
	wantWork(r, task.Chain(task.Group(inc, broken).IgnoreFailures(), sum), 4, 5)
}

// testStream: a group of many members that are given one by one.
func testStream(t *testing.T, open Open) {
	r := newWorks(t, open)
	total := task.New[task.Members[int], int]("total")
	handle(r, total, func(ctx context.Context, m task.Members[int]) (int, error) {
		n := 0
		for e, err := range m.All(ctx) {
			if err != nil {
				return 0, err
			}
			n += e.Value
		}
		return n, nil
	})
	r.start()
	want(r, submit(r, inc, 0), 1) // the consumer now listens
	for _, n := range []int{700, 1, 0} {
		run, err := task.Stream(r.ctx(), r.producer, upTo(n), inc.With(task.WithIgnoreResult(true)), total)
		if err != nil {
			t.Fatal(err)
		}
		want(r, run.Future, n*(n+1)/2)
	}
}

// upTo yields 0 to n-1.
func upTo(n int) iter.Seq[int] {
	return func(yield func(int) bool) {
		for i := range n {
			if !yield(i) {
				return
			}
		}
	}
}

// testMembersThatNeverRun: members that expire, that no consumer knows, or whose arguments do not
// fit still end.
func testMembersThatNeverRun(t *testing.T, open Open) {
	r := newWorks(t, open, func(_ *producer.Config, c *consumer.Config) { c.Tuning.UnknownRetries = -1 })
	shape := task.New[[]task.Settled[int], []string]("types")
	handle(r, shape, func(_ context.Context, ends []task.Settled[int]) ([]string, error) {
		var types []string
		for _, e := range ends {
			types = append(types, e.Failure.Type)
		}
		return types, nil
	})
	members := []task.Part[int, int]{task.New[int, int]("nobody-knows"), task.Fixed[int](task.New[string, int]("inc"), "no number")}
	wantTypes := []string{"swarmiji.UnknownTask", "swarmiji.BadArgs"}
	if !r.h.NoTimes {
		members = append(members, inc.With(task.WithExpires(time.Now().Add(-time.Minute))))
		wantTypes = append(wantTypes, "swarmiji.Expired")
	}
	run := submitWork(r, task.Chain(task.Group(members...).Collect(), shape), 1)
	r.start()
	got, err := run.Get(r.ctx())
	if diff := cmp.Diff(wantTypes, got); diff != "" || err != nil {
		t.Fatalf("%v (-want +got):\n%s", err, diff)
	}
}

// testForgottenGroup: if a member never ends, the futures that depend on its group end once the
// store has forgotten the group. The futures of members and of decided groups are not affected.
func testForgottenGroup(t *testing.T, open Open) {
	r := newWorks(t, open, func(_ *producer.Config, c *consumer.Config) { c.Tuning.GroupWait = 3 * time.Second })
	release := make(chan struct{})
	stuck := task.New[int, int]("stuck")
	handle(r, stuck, func(context.Context, int) (int, error) { <-release; return 0, nil })
	r.start()
	defer close(release)
	wantWork(r, task.Group(inc, inc), 1, []int{2, 2}) // the consumer now listens
	inner := task.Chord(task.Group(inc, stuck), sum)
	run := submitWork(r, task.Chain3(task.Group(inner, inc), sum, inc), 1)
	want(r, task.FutureOf[int](run.Steps()[0]), 2)
	for i, step := range run.Steps() {
		switch i {
		case 0, 1, 3: // inc, stuck, inc
			continue
		}
		if err := step.Result(r.ctx(), nil); !errors.Is(err, task.ErrGroupForgotten) {
			t.Errorf("the future of step %d, which is behind the group: %v", i, err)
		}
	}
	want(r, task.FutureOf[int](run.Steps()[3]), 2)
	select {
	case <-run.Steps()[1].Done():
		t.Error("the future of the member that runs has ended")
	default:
	}
}

// testGroupsNeedAGatherer: without a gatherer no group is sent, because it could never end. The
// error says which setting is missing.
func testGroupsNeedAGatherer(t *testing.T, open Open) {
	ran := atomic.Bool{}
	r := newRoad(t, open, func(p *producer.Config, _ *consumer.Config) { p.Results = onlyResults(p.Results) })
	handle(r, inc, func(_ context.Context, i int) (int, error) { ran.Store(true); return i + 1, nil })
	handle(r, add, func(_ context.Context, _ pair) (int, error) { return 0, nil })
	r.start()
	f := submit(r, add, pair{})
	_, err := task.Chain(inc, task.Group(inc, inc)).Submit(r.ctx(), r.producer, 1)
	if !errors.Is(err, broker.ErrUnsupported) || !contains(err.Error(), "Gatherer") {
		t.Fatalf("a group without a gatherer: %v", err)
	}
	_, _ = f.Get(r.ctx())
	if ran.Load() {
		t.Fatal("a step of it ran")
	}
	step := task.Part[int, int](inc)
	for range 1001 {
		step = task.Chain(step, inc)
	}
	if _, err := step.Part().Submit(r.ctx(), r.producer, 1); err == nil {
		t.Fatal("a chain of 1002 steps was taken, which no message holds")
	}
}

// onlyResults hides all optional interfaces of a store except resultstore.Replier.
func onlyResults(s resultstore.ResultStore) resultstore.ResultStore {
	if r, ok := capability.As[resultstore.Replier](s); ok {
		return struct {
			resultstore.ResultStore
			resultstore.Replier
		}{s, r}
	}
	n, _ := capability.As[resultstore.Notifier](s)
	return struct {
		resultstore.ResultStore
		resultstore.Notifier
	}{s, n}
}

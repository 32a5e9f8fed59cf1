package tasktest_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/task"
	"github.com/swarmiji/swarmiji/tasktest"
)

func TestFake(t *testing.T) {
	f := &tasktest.Fake{}
	first, second := errors.New("first"), errors.New("second")
	f.FailNext(first)
	f.FailNext(second)
	ctx := t.Context()
	if _, err := double.Submit(ctx, f, 1); !errors.Is(err, first) {
		t.Errorf("Submit returned %v", err)
	}
	if _, err := double.SubmitAll(ctx, f, []int{1, 2}); !errors.Is(err, second) {
		t.Errorf("SubmitAll returned %v", err)
	}
	futures := must(double.SubmitAll(ctx, f, []int{1, 2}, task.WithQueue("slow")))
	if _, err := double.Submit(ctx, f, 3, task.WithPriority(-1)); !errors.Is(err, task.ErrBadMetadata) {
		t.Errorf("bad metadata are %v", err)
	}
	if _, err := task.New[chan int, int]("channel").Submit(ctx, f, make(chan int)); err == nil {
		t.Error("arguments that cannot be written are taken")
	}
	tasktest.RequireSubmitted(t, f, double, tasktest.Like(2, task.WithQueue("slow")))
	tasktest.RequireNotSubmitted(t, f, double, tasktest.Like(2, task.WithQueue("default")))
	if state, err := futures[0].State(ctx); state != task.StatePending || err != nil {
		t.Errorf("the state is %s, %v", state, err)
	}
	soon, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := futures[0].Get(soon); !errors.Is(err, context.Canceled) {
		t.Errorf("Get returned %v", err)
	}
}

func TestFakeAnswers(t *testing.T) {
	f := &tasktest.Fake{Answer: func(c task.Call) (any, error) {
		if c.Args.(int) < 0 {
			return nil, task.ErrBadArgs
		}
		return 2 * c.Args.(int), nil
	}}
	ctx := t.Context()
	good, bad := must(double.Submit(ctx, f, 21)), must(double.Submit(ctx, f, -1))
	if n, err := good.Get(ctx); n != 42 || err != nil {
		t.Errorf("got %d, %v", n, err)
	}
	_, err := bad.Get(ctx)
	var remote *task.RemoteError
	if !errors.As(err, &remote) || !errors.Is(err, task.ErrBadArgs) {
		t.Errorf("got %v", err)
	}
	if state, _ := bad.State(ctx); state != task.StateFailed {
		t.Errorf("the state is %s", state)
	}
}

// A workflow's steps are noted, the first one with its arguments.
func TestFakeWorkflow(t *testing.T) {
	f := &tasktest.Fake{}
	workflow := task.Chain(task.Map(double), task.New[[]int, int]("sum"))
	must(workflow.Submit(t.Context(), f, []int{1, 2}))
	tasktest.RequireSubmitted(t, f, task.New[[]int, int]("sum"))
	must(task.Chain3(double, double, task.Fixed[int](mail, "done")).Submit(t.Context(), f, 5))
	tasktest.RequireSubmitted(t, f, double, tasktest.Like(5))
	tasktest.RequireSubmitted(t, f, mail, tasktest.Like("done", task.WithQueue("mail")))
}

// Like compares what options set and nothing else.
func TestLike(t *testing.T) {
	f := &tasktest.Fake{}
	at := time.Now().Add(48 * time.Hour).Truncate(time.Second)
	must(flaky.Submit(t.Context(), f, 1, task.WithID("a"), task.WithHeader("tenant", "x"), task.WithCorrelation("c"), task.WithExpires(at),
		task.WithDelay(time.Hour), task.WithTimeLimit(time.Minute)))
	for name, c := range map[string]struct {
		opts []task.Option
		like bool
	}{
		"nothing":           {nil, true},
		"definition":        {[]task.Option{task.WithMaxRetries(2)}, true},
		"other retries":     {[]task.Option{task.WithMaxRetries(3)}, false},
		"unset":             {[]task.Option{task.WithPriority(1)}, false},
		"id":                {[]task.Option{task.WithID("a")}, true},
		"other id":          {[]task.Option{task.WithID("b")}, false},
		"header":            {[]task.Option{task.WithHeader("tenant", "x")}, true},
		"other header":      {[]task.Option{task.WithHeader("tenant", "y")}, false},
		"correlation":       {[]task.Option{task.WithCorrelation("c")}, true},
		"other correlation": {[]task.Option{task.WithCorrelation("d")}, false},
		"expires":           {[]task.Option{task.WithExpires(at)}, true},
		"other expires":     {[]task.Option{task.WithExpires(at.Add(time.Second))}, false},
		"delay":             {[]task.Option{task.WithDelay(time.Hour)}, true},
		"other delay":       {[]task.Option{task.WithDelay(2 * time.Hour)}, false},
		"limit":             {[]task.Option{task.WithTimeLimit(time.Minute)}, true},
		"all":               {[]task.Option{task.WithTimeLimit(time.Minute), task.WithDelay(time.Hour), task.WithID("a"), task.WithQueue("default")}, true},
		"all but one":       {[]task.Option{task.WithTimeLimit(time.Minute), task.WithDelay(time.Hour), task.WithID("a"), task.WithQueue("x")}, false},
	} {
		if got := len(tasktest.Submitted(f, flaky, tasktest.Like(1, c.opts...))) == 1; got != c.like {
			t.Errorf("%s: accepted is %v", name, got)
		}
	}
	if len(tasktest.Submitted(f, flaky, tasktest.Like(2))) != 0 {
		t.Error("other arguments are accepted")
	}
}

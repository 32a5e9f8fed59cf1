package task_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/swarmiji/swarmiji/task"
)

// TestBackoffCeiling checks S61: delay = min(max, factor * 2^retries), 1 s and 600 s unless given.
// S65: base * 2^(factor*k).
func TestBackoffCeiling(t *testing.T) {
	const s = time.Second
	for _, c := range []struct {
		b    task.Backoff
		want []time.Duration
	}{
		{task.Backoff{Strategy: task.BackoffConstant}, []time.Duration{s, s, s}},
		{task.Backoff{Strategy: task.BackoffLinear, Base: 2 * s, Max: 5 * s}, []time.Duration{2 * s, 4 * s, 5 * s, 5 * s}},
		{task.Backoff{Strategy: task.BackoffExponential}, []time.Duration{s, 2 * s, 4 * s, 8 * s, 16 * s, 32 * s, 64 * s, 128 * s, 256 * s, 512 * s, 600 * s, 600 * s}},
		{task.Backoff{Strategy: task.BackoffExponential, Factor: 2, Max: time.Minute}, []time.Duration{s, 4 * s, 16 * s, time.Minute}},
		{task.Backoff{Strategy: task.BackoffExponential, Base: time.Hour}, []time.Duration{600 * s}},
	} {
		for n, want := range c.want {
			if got, ok := c.b.Ceiling(n); !ok || got != want {
				t.Errorf("%+v: retry %d after %s, want %s", c.b, n, got, want)
			}
		}
		if got, _ := c.b.Ceiling(1 << 40); got <= 0 || got > 600*s {
			t.Errorf("%+v: far retry after %s", c.b, got)
		}
	}
	if _, ok := (task.Backoff{}).Ceiling(0); ok {
		t.Error("no strategy gives a delay")
	}
}

// TestBackoffJitter shows that full jitter is evenly distributed between 0 and the ceiling, and the
// same for the same task and retry.
func TestBackoffJitter(t *testing.T) {
	b := task.Backoff{Strategy: task.BackoffConstant, Base: time.Second, Jitter: true}
	var low, sum time.Duration
	const n = 4000
	for i := range n {
		id := task.ID(fmt.Sprintf("task-%d", i))
		d, ok := b.Delay(id, i%5)
		if again, _ := b.Delay(id, i%5); !ok || d < 0 || d > time.Second || d != again {
			t.Fatalf("delay %s, then %s", d, again)
		}
		if d < time.Second/2 {
			low++
		}
		sum += d
	}
	if low < n*45/100 || low > n*55/100 || sum/n < 450*time.Millisecond || sum/n > 550*time.Millisecond {
		t.Errorf("%d of %d below the middle, mean %s", low, n, sum/n)
	}
	one, _ := b.Delay("x", 0)
	if two, _ := b.Delay("x", 1); one == two {
		t.Error("two retries of a task wait equally long")
	}
}

// Promises: S65.
func TestRetryPolicyText(t *testing.T) {
	for want, p := range map[string]task.RetryPolicy{
		"delay": {},
		"exponential base=500 max=60000 jitter=full on=net.OpError,swarmiji.TimeLimit": {
			On:      []string{"net.OpError", "swarmiji.TimeLimit"},
			Backoff: task.Backoff{Strategy: task.BackoffExponential, Base: 500 * time.Millisecond, Max: time.Minute, Jitter: true},
		},
		"exponential base=1000 factor=1": {Backoff: task.Backoff{Strategy: task.BackoffExponential, Base: time.Second, Factor: 1}},
		"constant base=1 except=x":       {Except: []string{"x"}, Backoff: task.Backoff{Strategy: task.BackoffConstant, Base: time.Microsecond}},
	} {
		if got := p.String(); got != want {
			t.Errorf("text is %q, want %q", got, want)
		}
		got, err := task.ParseRetryPolicy(want)
		if err != nil || got.String() != want {
			t.Errorf("%q was read as %+v, %v", want, got, err)
		}
	}
	for _, bad := range []string{
		"", "often", "constant base=0", "constant base=-5", "constant base=x", "constant base", "constant base=1 base=2", "linear max=99999999999999999999",
		"exponential factor=0", "exponential factor=64", "delay jitter=half", "delay on=", "delay on=a,,b", "delay on=" + strings.Repeat("a", 129),
		"delay on=" + strings.Repeat("a,", 32) + "a", "delay unknown=1", "delay  on=a", "constant\nbase=1",
	} {
		if p, err := task.ParseRetryPolicy(bad); !errors.Is(err, task.ErrBadMetadata) {
			t.Errorf("%q was read as %+v, %v", bad, p, err)
		}
	}
}

func TestRetryPolicyTextComesBack(t *testing.T) {
	name := rapid.StringMatching(`[!-+\--~]{1,128}`)
	rapid.Check(t, func(t *rapid.T) {
		ms := rapid.Map(rapid.Int64Range(0, task.MaxTimeLimit.Milliseconds()), func(n int64) time.Duration { return time.Duration(n) * time.Millisecond })
		p := task.RetryPolicy{
			On: rapid.SliceOfN(name, 0, 16).Draw(t, "on"), Except: rapid.SliceOfN(name, 0, 16).Draw(t, "except"),
			Backoff: task.Backoff{
				Strategy: rapid.SampledFrom([]task.Strategy{task.BackoffNone, task.BackoffConstant, task.BackoffLinear, task.BackoffExponential}).Draw(t, "strategy"),
				Base:     ms.Draw(t, "base"), Max: ms.Draw(t, "max"), Factor: rapid.IntRange(0, 63).Draw(t, "factor"), Jitter: rapid.Bool().Draw(t, "jitter"),
			},
		}
		if len(p.On) == 0 {
			p.On = nil
		}
		if len(p.Except) == 0 {
			p.Except = nil
		}
		got, err := task.ParseRetryPolicy(p.String())
		if err != nil {
			t.Fatalf("%q: %v", p, err)
		}
		if diff := cmp.Diff(p, got); diff != "" {
			t.Fatalf("%q: %s", p, diff)
		}
		if d, ok := p.Backoff.Delay("id", rapid.IntRange(-1, 1<<40).Draw(t, "n")); ok && (d < 0 || p.Backoff.Max > 0 && d > p.Backoff.Max) {
			t.Fatalf("%q: delay %s", p, d)
		}
	})
}

func TestErrorNames(t *testing.T) {
	op := &net.OpError{Op: "dial", Err: errors.New("refused")}
	for _, c := range []struct {
		err  error
		want []string
	}{
		{fmt.Errorf("call: %w", op), []string{"fmt.wrapError", "net.OpError", "errors.errorString"}},
		{task.Named("billing.Busy", errors.New("busy")), []string{"billing.Busy", "errors.errorString"}},
		{fmt.Errorf("x: %w", task.ErrTimeLimit), []string{"swarmiji.TimeLimit", "fmt.wrapError", "errors.errorString"}},
		{errors.Join(fs.ErrExist, op), []string{"errors.joinError", "errors.errorString", "net.OpError", "errors.errorString"}},
		{&task.RemoteError{Type: "net.OpError"}, []string{"net.OpError"}},
		{nil, nil},
	} {
		if got := task.ErrorNames(c.err); !slices.Equal(got, c.want) {
			t.Errorf("%v: %q, want %q", c.err, got, c.want)
		}
	}
	if err := task.Named("x", nil); err != nil {
		t.Errorf("no error was named: %v", err)
	}
	remote := task.Remote(fmt.Errorf("pay: %w", task.Named("billing.Busy", errors.New("busy"))))
	if remote.Type != "billing.Busy" || remote.Message != "pay: busy" {
		t.Errorf("a named error travels as %+v", remote)
	}
}

func TestRetryPolicyMatches(t *testing.T) {
	op, busy := &net.OpError{Err: errors.New("refused")}, task.Named("billing.Busy", errors.New("busy"))
	for _, c := range []struct {
		p    task.RetryPolicy
		err  error
		want bool
	}{
		{task.RetryPolicy{}, busy, true},
		{task.RetryPolicy{}, nil, false},
		{task.RetryPolicy{}, task.ErrBadArgs, false},
		{task.RetryPolicy{On: []string{"swarmiji.BadArgs"}}, task.ErrBadArgs, true},
		{task.RetryPolicy{On: []string{"net.OpError"}}, fmt.Errorf("x: %w", op), true},
		{task.RetryPolicy{On: []string{"net.OpError"}}, busy, false},
		{task.RetryPolicy{Except: []string{"billing.Busy"}}, busy, false},
		{task.RetryPolicy{Except: []string{"billing.Busy"}}, op, true},
		{task.RetryPolicy{On: []string{"net.OpError"}, Except: []string{"billing.Busy"}}, errors.Join(op, busy), false},
	} {
		if got := c.p.Matches(c.err); got != c.want {
			t.Errorf("%q retries %v: %t, want %t", c.p, c.err, got, c.want)
		}
	}
}

// Promises: S18.
func TestOutcome(t *testing.T) {
	cause := errors.New("broken")
	request := func(retries int, m task.Metadata) *task.Request {
		return task.NewRequest(&task.Envelope{ID: "id", Retries: retries, Meta: m}, nil)
	}
	policy := task.Metadata{Retry: task.Set("linear base=1000"), MaxRetries: task.Set(2)}
	for _, c := range []struct {
		name    string
		retries int
		meta    task.Metadata
		err     error
		want    task.Outcome
		text    string // text of the recorded error
	}{
		{"success", 1, policy, nil, task.Outcome{State: task.StateSucceeded, Retries: 1, Limit: 2}, ""},
		{"no policy", 0, task.Metadata{}, cause, task.Outcome{State: task.StateFailed, Limit: 3}, "broken"},
		{"policy", 1, policy, cause, task.Outcome{State: task.StateRetrying, Delay: 2 * time.Second, Retries: 1, Limit: 2}, "broken"},
		{"policy used up", 2, policy, cause, task.Outcome{State: task.StateFailed, Exhausted: true, Retries: 2, Limit: 2}, "broken"},
		{"policy, RetryDelay", 0, task.Metadata{Retry: task.Set("delay"), RetryDelay: task.Set(time.Hour)}, cause, task.Outcome{State: task.StateRetrying, Delay: time.Hour, Limit: 3}, "broken"},
		{"policy of a foreign writer", 0, task.Metadata{Retry: task.Set("whenever")}, cause, task.Outcome{State: task.StateFailed, Limit: 3}, "broken"},
		{"failed for good", 0, policy, task.Fail(cause), task.Outcome{State: task.StateFailed, Limit: 2}, "broken"},
		{"snooze", 0, policy, task.Snooze(time.Minute), task.Outcome{State: task.StatePending, Delay: time.Minute, Limit: 2}, ""},
		{"deferred", 1, policy, task.Defer("key"), task.Outcome{State: task.StateAwaiting, Retries: 1, Limit: 2}, ""},
		{"refused", 0, task.Metadata{Retry: task.Set("delay on=swarmiji.Rejected")}, task.Rejected("no stock"), task.Outcome{State: task.StateRetrying, Delay: task.DefaultRetryDelay, Limit: 3}, "no stock"},
		{"by hand", 0, policy, task.Retry(cause, task.After(time.Minute), task.AtMost(9)), task.Outcome{State: task.StateRetrying, Delay: time.Minute, Limit: 9}, "broken"},
		{"by hand, no delay", 0, task.Metadata{}, task.Retry(nil), task.Outcome{State: task.StateRetrying, Delay: task.DefaultRetryDelay, Limit: 3}, "swarmiji: retry"},
		{"by hand, used up", 3, task.Metadata{}, task.Retry(nil), task.Outcome{State: task.StateFailed, Exhausted: true, Retries: 3, Limit: 3}, "swarmiji: retry limit exceeded: 3"},
		{"no limit", 99, task.Metadata{MaxRetries: task.Set(-1)}, task.Retry(cause, task.After(0)), task.Outcome{State: task.StateRetrying, Retries: 99, Limit: -1}, "broken"},
	} {
		r := request(c.retries, c.meta)
		got := r.Outcome(c.err)
		text := ""
		if err := got.Recorded(); err != nil {
			text = err.Error()
		}
		if text != c.text {
			t.Errorf("%s: recorded is %q, want %q", c.name, text, c.text)
		}
		if spent, ok := errors.AsType[*task.MaxRetriesError](got.Err); ok != c.want.Exhausted ||
			ok && (spent.Limit != c.want.Limit || !errors.Is(got.Err, task.ErrMaxRetries)) {
			t.Errorf("%s: error is %#v", c.name, got.Err)
		}
		if v := got.Await; (v != nil) != (got.State == task.StateAwaiting) || v != nil && v.Key != "key" {
			t.Errorf("%s: it awaits %+v", c.name, v)
		}
		got.Await = nil
		if got.Err = nil; got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
	spent := request(3, task.Metadata{}).Outcome(task.Retry(cause)).Err
	if !errors.Is(spent, cause) || !errors.Is(spent, task.ErrMaxRetries) || spent.Error() != "swarmiji: retry limit exceeded: 3: broken" {
		t.Errorf("the error of a task without retries left is %v", spent)
	}
}

// TestRetryOutsideOfATask (S62) shows that a retry outside of a task is only an error and sends
// nothing.
func TestRetryOutsideOfATask(t *testing.T) {
	ctx := context.Background()
	if _, ok := task.FromContext(ctx); ok {
		t.Fatal("there is a task")
	}
	err := task.Retry(errors.New("broken"), task.After(time.Minute))
	if err == nil || task.VerdictOf(err) == nil {
		t.Fatalf("retry gave %v", err)
	}
}

func TestWithRetry(t *testing.T) {
	def := task.New[int, int]("x", task.WithRetry(task.RetryPolicy{On: []string{"a"}}))
	if got := def.Metadata().Retry.Or(""); got != "delay on=a" {
		t.Errorf("the definition says %q", got)
	}
	off := def.With(task.WithoutRetry()).Metadata()
	if text, ok := off.Retry.Get(); !ok || text != "" || off.Check() != nil {
		t.Errorf("switched off it says %q, %t", text, ok)
	}
	bad := def.With(task.WithRetry(task.RetryPolicy{On: []string{"a b"}})).Metadata()
	if err := bad.Check(); !errors.Is(err, task.ErrBadMetadata) {
		t.Errorf("a name with a space gives %v", err)
	}
	if err := bad.Check(); err == nil || !strings.Contains(err.Error(), "retry") {
		t.Errorf("the problem is told as %v", err)
	}
}

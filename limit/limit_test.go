package limit_test

import (
	"context"
	"errors"
	"log/slog"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/swarmiji/swarmiji/limit"
	"github.com/swarmiji/swarmiji/limit/limittest"
	"github.com/swarmiji/swarmiji/task"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestMemory(t *testing.T) {
	limittest.Run(t, func(*testing.T) func(*testing.T) limit.Limiter {
		l := limit.NewMemory()
		return func(*testing.T) limit.Limiter { return l }
	})
}

// TestRateOverTime shows that no period has more starts than the rate and its burst allow.
func TestRateOverTime(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		rate, burst := rapid.IntRange(1, 20).Draw(rt, "rate"), rapid.IntRange(1, 5).Draw(rt, "burst")
		gaps := rapid.SliceOfN(rapid.IntRange(0, 300), 1, 200).Draw(rt, "gaps")
		synctest.Test(t, func(t *testing.T) {
			l := limit.NewMemory()
			var starts []time.Time
			for i, gap := range gaps {
				time.Sleep(time.Duration(gap) * time.Millisecond)
				d, err := l.Acquire(t.Context(), strconv.Itoa(i), time.Second, limit.Permit{Key: "a", Rate: rate, Burst: burst})
				if err != nil {
					t.Fatal(err)
				}
				if d.Granted {
					starts = append(starts, time.Now())
				}
			}
			interval := time.Second / time.Duration(rate)
			for i := range starts {
				for j := i + burst; j < len(starts); j++ {
					if span := starts[j].Sub(starts[i]); span+time.Microsecond < time.Duration(j-i-burst+1)*interval {
						rt.Fatalf("%d began within %s at %d/s and a burst of %d", j-i+1, span, rate, burst)
					}
				}
			}
			if len(starts) == 0 {
				rt.Fatal("none began")
			}
		})
	})
}

func request(id task.ID, name string) *task.Request {
	return task.NewRequest(&task.Envelope{ID: id, Name: name}, nil)
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

func wrap(t *testing.T, c limit.Config, h task.HandlerFunc) task.Handler {
	t.Helper()
	c.Logger = quiet()
	admit, err := limit.Admit(c)
	if err != nil {
		t.Fatal(err)
	}
	return task.HandlerFunc(func(ctx context.Context, r *task.Request) (any, error) {
		release, err := admit(ctx, r)
		if err != nil {
			return nil, err
		}
		if release != nil {
			defer release()
		}
		return h(ctx, r)
	})
}

func snoozed(t *testing.T, err error) time.Duration {
	t.Helper()
	v, ok := errors.AsType[*task.SnoozeVerdict](err)
	if !ok {
		t.Fatalf("%v is no snooze", err)
	}
	return v.Delay
}

// TestAdmit shows that refused tasks get different delays, that long runs keep their permits, and
// that ended runs release them.
func TestAdmit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		end := make(chan struct{})
		h := wrap(t, limit.Config{
			Limiter: limit.NewMemory(), Lease: time.Second, Delay: 10 * time.Second,
			Tasks: map[string][]limit.Permit{"few": {{Key: "few", Max: 2}}, "slow": {{Key: "slow", Rate: 1, Per: time.Minute}}},
		}, func(context.Context, *task.Request) (any, error) {
			<-end
			return 7, nil
		})
		var wg sync.WaitGroup
		for _, id := range []task.ID{"1", "2"} {
			wg.Go(func() {
				if v, err := h.Handle(t.Context(), request(id, "few")); v != 7 || err != nil {
					t.Errorf("%v, %v", v, err)
				}
			})
		}
		time.Sleep(time.Minute) // many leases
		delays := map[time.Duration]bool{}
		for i := range 20 {
			_, err := h.Handle(t.Context(), request(task.ID(strconv.Itoa(10+i)), "few"))
			d := snoozed(t, err)
			if d < 11*time.Second || d > 15*time.Second {
				t.Errorf("put back for %s", d)
			}
			delays[d] = true
		}
		if len(delays) < 2 {
			t.Error("all are put back for the same time")
		}
		close(end)
		wg.Wait()
		for _, name := range []string{"few", "few", "few", "slow", "free"} {
			if v, err := h.Handle(t.Context(), request("3", name)); v != 7 || err != nil {
				t.Errorf("%s: %v, %v", name, v, err)
			}
		}
		_, err := h.Handle(t.Context(), request("4", "slow"))
		if d := snoozed(t, err); d < time.Minute || d > 65*time.Second {
			t.Errorf("a task whose rate has room in a minute is put back for %s", d)
		}
	})
}

// failingLimiter is a limiter that returns errors.
type failingLimiter struct{ err error }

func (d failingLimiter) Acquire(context.Context, string, time.Duration, ...limit.Permit) (limit.Decision, error) {
	return limit.Decision{}, d.err
}

func (d failingLimiter) Renew(context.Context, string, time.Duration, ...limit.Permit) error {
	return d.err
}
func (d failingLimiter) Release(context.Context, string, ...limit.Permit) error { return d.err }

// TestAdmitWithoutAnAnswer shows that without an answer the task is delayed and nothing is counted.
func TestAdmitWithoutAnAnswer(t *testing.T) {
	permits := func(*task.Request) []limit.Permit { return []limit.Permit{{Key: "a", Max: 1}} }
	run := func(context.Context, *task.Request) (any, error) {
		t.Error("it ran")
		return nil, nil
	}
	_, err := wrap(t, limit.Config{Limiter: failingLimiter{limit.ErrUnavailable}, Permits: permits}, run).Handle(t.Context(), request("1", "x"))
	if d := snoozed(t, err); d < time.Second || d > 2*time.Second {
		t.Errorf("put back for %s", d)
	}
	bad := func(*task.Request) []limit.Permit { return []limit.Permit{{Key: ""}} }
	_, err = wrap(t, limit.Config{Limiter: limit.NewMemory(), Permits: bad}, run).Handle(t.Context(), request("1", "x"))
	if v, ok := errors.AsType[*task.FailVerdict](err); !ok || !errors.Is(v, limit.ErrBadPermit) {
		t.Errorf("a permit that is none: %v", err)
	}
}

// TestAdmitConfig shows that all problems of a configuration are returned.
func TestAdmitConfig(t *testing.T) {
	_, err := limit.Admit(limit.Config{Lease: -1})
	if err == nil || len(err.(interface{ Unwrap() []error }).Unwrap()) != 3 {
		t.Errorf("%v", err)
	}
	_, err = limit.Admit(limit.Config{Limiter: limit.NewMemory(), Tasks: map[string][]limit.Permit{"x": {{Key: "a", Max: -1}}}})
	if !errors.Is(err, limit.ErrBadPermit) {
		t.Errorf("%v", err)
	}
}

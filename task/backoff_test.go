package task_test

import (
	"math"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/task"
)

func TestIntervalDoublesUpToMax(t *testing.T) {
	tests := []struct {
		name    string
		b       task.Backoff
		attempt int
		longest time.Duration
	}{
		{"zero value, first", task.Backoff{}, 0, 100 * time.Millisecond},
		{"negative counts as first", task.Backoff{}, -3, 100 * time.Millisecond},
		{"doubles", task.Backoff{}, 3, 800 * time.Millisecond},
		{"stops at the default maximum", task.Backoff{}, 6, 5 * time.Second},
		{"stays there", task.Backoff{}, math.MaxInt, 5 * time.Second},
		{"own bounds", task.Backoff{Base: time.Second, Max: 3 * time.Second}, 1, 2 * time.Second},
		{"own maximum", task.Backoff{Base: time.Second, Max: 3 * time.Second}, 2, 3 * time.Second},
		{"maximum below base", task.Backoff{Base: time.Second, Max: time.Millisecond}, 5, time.Second},
		{"no overflow", task.Backoff{Base: 1, Max: math.MaxInt64}, 1000, math.MaxInt64},
		{"own factor", task.Backoff{Factor: 2}, 1, 400 * time.Millisecond},
		{"own strategy, with jitter", task.Backoff{Strategy: task.BackoffLinear, Jitter: true}, 2, 300 * time.Millisecond},
		{"unknown strategy", task.Backoff{Strategy: "fibonacci"}, 2, 400 * time.Millisecond},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var low, high bool
			for range 10_000 {
				d := tt.b.Interval(tt.attempt)
				if d <= 0 || d > tt.longest {
					t.Fatalf("Interval(%d) = %v, want more than 0 and at most %v", tt.attempt, d, tt.longest)
				}
				low = low || d < tt.longest/4
				high = high || d > tt.longest/4*3
			}
			if !low || !high {
				t.Errorf("10,000 draws touched the lowest quarter: %v, the highest: %v; the jitter must use the whole range", low, high)
			}
		})
	}
}

func TestIntervalWithoutJitter(t *testing.T) {
	for _, tt := range []struct {
		b    task.Backoff
		want [3]time.Duration
	}{
		{task.Backoff{Strategy: task.BackoffConstant}, [3]time.Duration{100 * time.Millisecond, 100 * time.Millisecond, 100 * time.Millisecond}},
		{task.Backoff{Strategy: task.BackoffLinear, Base: time.Second, Max: 2 * time.Second}, [3]time.Duration{time.Second, 2 * time.Second, 2 * time.Second}},
		{task.Backoff{Strategy: task.BackoffExponential, Base: time.Second}, [3]time.Duration{time.Second, 2 * time.Second, 4 * time.Second}},
	} {
		for n, want := range tt.want {
			if got := tt.b.Interval(n); got != want {
				t.Errorf("%+v: Interval(%d) = %v, want %v", tt.b, n, got, want)
			}
		}
	}
}

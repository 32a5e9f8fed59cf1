package backoff

import (
	"math"
	"testing"
	"time"
)

func TestCeilingDoublesUpToMax(t *testing.T) {
	tests := []struct {
		name    string
		e       Exponential
		attempt int
		want    time.Duration
	}{
		{"zero value, first", Exponential{}, 0, 100 * time.Millisecond},
		{"negative counts as first", Exponential{}, -3, 100 * time.Millisecond},
		{"doubles", Exponential{}, 3, 800 * time.Millisecond},
		{"stops at the default maximum", Exponential{}, 6, 5 * time.Second},
		{"stays there", Exponential{}, math.MaxInt, 5 * time.Second},
		{"own bounds", Exponential{Min: time.Second, Max: 3 * time.Second}, 1, 2 * time.Second},
		{"own maximum", Exponential{Min: time.Second, Max: 3 * time.Second}, 2, 3 * time.Second},
		{"maximum below minimum", Exponential{Min: time.Second, Max: time.Millisecond}, 5, time.Second},
		{"no overflow", Exponential{Min: 1, Max: math.MaxInt64}, 1000, math.MaxInt64},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := tt.e.Ceiling(tt.attempt); got != tt.want {
				t.Errorf("Ceiling(%d) = %v, want %v", tt.attempt, got, tt.want)
			}
		})
	}
}

func TestDelayUsesTheWholeRange(t *testing.T) {
	e := Exponential{Min: 100 * time.Millisecond, Max: time.Second}
	var low, high bool
	for range 10_000 {
		d := e.Delay(1)
		if d <= 0 || d > 200*time.Millisecond {
			t.Fatalf("Delay(1) = %v, want more than 0 and at most 200ms", d)
		}
		low = low || d < 50*time.Millisecond
		high = high || d > 150*time.Millisecond
	}
	if !low || !high {
		t.Errorf("10,000 draws touched the lowest quarter: %v, the highest: %v; the jitter must use the whole range", low, high)
	}
}

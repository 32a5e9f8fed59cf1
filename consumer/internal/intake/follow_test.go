package intake

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestPace shows the prefetch of workers that run short tasks, long tasks, and both.
func TestPace(t *testing.T) {
	const base = 8 // of 2 workers
	for _, c := range []struct {
		what  string
		now   int
		ticks []tick
		want  int
	}{
		{"50 ms of short tasks", base, []tick{{busy: 2, took: 100}}, 100},
		{"at most 256", base, []tick{{busy: 1, took: 5000}}, 256},
		{"slower tasks", 200, []tick{{busy: 2, took: 20}}, 20},
		{"not much slower", 200, []tick{{busy: 2, took: 150}}, 200},
		{"an empty queue", 200, []tick{{busy: 0, took: 3}, {busy: 0}}, 200},
		{"tasks of 30 ms", base, []tick{{busy: 2, took: 3}, {busy: 2, took: 4}}, base},
		{"all workers have long tasks", 200, []tick{{busy: 2, took: 2}, {busy: 2}}, 2},
		{"one worker has a long task", base, []tick{{busy: 2, took: 30}, {busy: 2, took: 30}}, 30},
		{"one long task after the other", base, []tick{{busy: 2}, {busy: 2, took: 1}, {busy: 1}, {busy: 2, took: 1}, {busy: 2}}, 2},
		{"short tasks after long ones", base, []tick{{busy: 2}, {busy: 2, took: 40}}, base},
		{"short tasks a second after long ones", base, append([]tick{{busy: 2}}, slices.Repeat([]tick{{busy: 2, took: 40}}, 21)...), 40},
		{"a worker is free", base, []tick{{busy: 2}, {busy: 1}, {busy: 1}}, base},
		{"one of two held tasks waits", base, []tick{{busy: 2}, {busy: 1, took: 1}, {busy: 1, took: 1}}, base},
	} {
		var p pace
		got := c.now
		for _, one := range c.ticks {
			one.base, one.workers = base, 2
			got = p.next(got, one)
		}
		if got != c.want {
			t.Errorf("%s: %d, want %d", c.what, got, c.want)
		}
	}
}

// TestPaceOfDividedSubscription shows that workers with long tasks for a second stop the fetching,
// and that a free worker starts it.
func TestPaceOfDividedSubscription(t *testing.T) {
	const base = 8 // of 2 workers
	second := slices.Repeat([]tick{{busy: 2}}, stopAfter)
	after := func(more ...tick) []tick { return append(slices.Clone(second), more...) }
	for _, c := range []struct {
		what  string
		ticks []tick
		want  int
	}{
		{"long tasks for less than a second", second[1:], 2},
		{"long tasks for a second", second, 0},
		{"a task has ended", after(tick{busy: 1}), 2},
		{"the next long task was taken", after(tick{busy: 1}, tick{busy: 2, took: 1}), 2},
		{"the next long task runs", after(tick{busy: 1}, tick{busy: 2, took: 1}, tick{busy: 2}), 0},
		{"a worker stays free", after(tick{busy: 1}, tick{busy: 1}), base},
		{"a long task of a queue that was empty", after(tick{busy: 1}, tick{busy: 1}, tick{busy: 2, took: 1}, tick{busy: 2}), 2},
		{"a long task after short ones", after(tick{busy: 1}, tick{busy: 2, took: 40}, tick{busy: 2}), 2},
	} {
		p, got := pace{divided: true}, base
		for _, one := range c.ticks {
			one.base, one.workers = base, 2
			got = p.next(got, one)
		}
		if got != c.want {
			t.Errorf("%s: %d, want %d", c.what, got, c.want)
		}
	}
}

// TestPaceModel shows for any ticks that the prefetch is at least the number of workers, and at
// most 256 or the base. Only long tasks beside a divided subscription make it 0. It does not fall
// while workers are free, and is the base again after two ticks.
func TestPaceModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		workers := rapid.IntRange(1, 100).Draw(t, "workers")
		base := 4 * workers
		now, free, still := base, 0, 0
		p := pace{divided: rapid.Bool().Draw(t, "divided")}
		for range rapid.IntRange(1, 50).Draw(t, "ticks") {
			one := tick{base: base, workers: workers, busy: rapid.IntRange(0, workers).Draw(t, "busy"), took: rapid.IntRange(0, 1000).Draw(t, "took")}
			switch rapid.IntRange(0, 5).Draw(t, "kind") {
			case 0, 1, 2:
				one.took, one.busy = 0, workers
			case 3:
				one.took = 0
			}
			next := p.next(now, one)
			if free++; one.busy == workers {
				free = 0
			}
			if still++; one.busy < workers || one.took > 0 {
				still = 0
			}
			switch {
			case next == 0 && (!p.divided || still == 0):
				t.Fatalf("0 after %+v", one)
			case next > 0 && p.divided && still >= stopAfter:
				t.Fatalf("%d although all workers have had long tasks for a second", next)
			case next > 0 && next < workers || next > max(base, 256):
				t.Fatalf("%d after %+v", next, one)
			case next < base && free >= 2:
				t.Fatalf("%d after two ticks with free workers", next)
			case next < now && one.busy < workers:
				t.Fatalf("%d became %d while workers are free", now, next)
			case one.took == 0 && one.busy == workers && next > workers:
				t.Fatalf("%d although all workers have long tasks", next)
			case one.atRest(next, p.divided) && (next < base && one.busy < workers || next > 0 && one.busy == workers && p.divided):
				t.Fatalf("at rest with a prefetch of %d after %+v", next, one)
			}
			now = next
		}
	})
}

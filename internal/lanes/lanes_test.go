package lanes

import (
	"fmt"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/swarmiji/swarmiji/broker"
)

// submission is a submission in the model of a Counter.
type submission struct {
	pause  time.Duration // before it
	level  string
	key    string
	weight int
}

// TestLaneFollowsRecentSubmissions compares a Counter with the sum over all submissions.
func TestLaneFollowsRecentSubmissions(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		all := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) submission {
			return submission{
				time.Duration(rapid.SampledFrom([]int{0, 0, 0, 1, 100, 5000, 40_000}).Draw(t, "pause")) * time.Millisecond,
				rapid.SampledFrom([]string{"low", "high"}).Draw(t, "level"),
				rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "key"),
				rapid.SampledFrom([]int{0, 1, 3, 100}).Draw(t, "weight"),
			}
		}), 1, 300).Draw(r, "submissions")
		var problem string
		synctest.Test(t, func(*testing.T) {
			var c Counter
			for i, s := range all {
				time.Sleep(s.pause)
				got := c.Choose(s.level, &broker.Message{Key: s.key, Weight: s.weight})
				const rounding = 1e-6
				recent := recentBefore(all[:i+1])
				if lowest, highest := laneOf(recent-rounding), laneOf(recent+rounding); got < lowest || got > highest {
					problem = fmt.Sprintf("submission %d has lane %d, want %d to %d for %v recent ones", i, got, lowest, highest, recent)
					return
				}
			}
		})
		if problem != "" {
			r.Fatal(problem)
		}
	})
}

// recentBefore returns the number of recent submissions before the last of all, of its key.
func recentBefore(all []submission) (n float64) {
	last := all[len(all)-1]
	age := last.pause
	for i := len(all) - 2; i >= 0; i-- {
		if s := all[i]; s.level == last.level && s.key == last.key {
			n += math.Exp2(-age.Seconds()/30) / float64(max(s.weight, 1))
		}
		age += all[i].pause
	}
	return n
}

// laneOf returns the lane of a key with the given number of recent submissions.
func laneOf(recent float64) int {
	switch {
	case recent < 3.5:
		return 0
	case recent < 15.5:
		return 1
	case recent < 63.5:
		return 2
	}
	return 3
}

func TestCopyKeepsItsLane(t *testing.T) {
	var c Counter
	for range 100 {
		c.Choose("level", &broker.Message{Key: "heavy"})
	}
	for _, tt := range []struct {
		m    broker.Message
		want int
	}{
		{broker.Message{Key: "heavy"}, 3},
		{broker.Message{Key: "heavy", Generation: 1}, 0},
		{broker.Message{Key: "heavy", Generation: 1, Headers: map[string]any{Header: int64(2)}}, 2},
		{broker.Message{Key: "heavy", Headers: map[string]any{Header: int64(1)}}, 1},
		{broker.Message{Key: "heavy", Headers: map[string]any{Header: int64(4)}}, 3},
		{broker.Message{Key: "heavy", Headers: map[string]any{Header: int64(-1)}}, 3},
		{broker.Message{Key: "heavy", Headers: map[string]any{Header: "2"}}, 3},
	} {
		if got := c.Choose("level", &tt.m); got != tt.want {
			t.Errorf("the lane of generation %d with the headers %v is %d, want %d", tt.m.Generation, tt.m.Headers, got, tt.want)
		}
	}
}

func TestHeaderComesBack(t *testing.T) {
	for _, tt := range []struct {
		lane int64
		want int
	}{{-1, 0}, {0, 0}, {1, 1}, {3, 3}, {4, 0}, {math.MaxInt64, 0}} {
		var m broker.Message
		Set(&m, tt.lane)
		if got := Of(&m); got != tt.want || (m.Headers != nil) != (tt.want > 0) {
			t.Errorf("lane %d comes back as %d with the headers %v, want %d", tt.lane, got, m.Headers, tt.want)
		}
	}
}

// TestLongestSilentKeyIsForgotten fills the memory of a Counter.
func TestLongestSilentKeyIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c Counter
		submit := func(key string) int { return c.Choose("level", &broker.Message{Key: key}) }
		for range 4 {
			submit("silent")
			submit("busy")
		}
		for i := range maxKeys - 1 {
			submit(fmt.Sprint(i))
		}
		submit("busy")
		submit("one more")
		if got := submit("busy"); got != 1 {
			t.Errorf("the key that was used again is in lane %d, want 1", got)
		}
		if got := submit("silent"); got != 0 {
			t.Errorf("the key that was silent longest is in lane %d, want 0: forgotten", got)
		}
		if n := len(c.counts); n != maxKeys || c.order.Len() != n {
			t.Errorf("%d keys are remembered, %d in order, want %d", n, c.order.Len(), maxKeys)
		}
	})
}

// TestTurns shows the proportion while all lanes have messages, and that no lane waits longer than
// the turns of the others.
func TestTurns(t *testing.T) {
	var all laneTurns
	got := [Count]int{}
	for range 15 * 100 {
		lane, ok := all.next(func(int) bool { return true })
		if !ok {
			t.Fatal("no lane has a turn although all are ready")
		}
		got[lane]++
	}
	if want := [Count]int{800, 400, 200, 100}; got != want {
		t.Errorf("the lanes got %v turns, want %v", got, want)
	}
	if lane, ok := all.next(func(int) bool { return false }); ok {
		t.Errorf("lane %d has a turn although none is ready", lane)
	}
}

// TestReadyLaneWaitsForTheOthersTurns draws which lanes are ready, and checks the wait of each.
func TestReadyLaneWaitsForTheOthersTurns(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var all laneTurns
		var waited [Count]int
		for range rapid.IntRange(1, 200).Draw(t, "turns") {
			var ready [Count]bool
			for lane := range ready {
				// a lane that waits does not become empty
				ready[lane] = waited[lane] > 0 || rapid.Bool().Draw(t, "ready")
			}
			next, ok := all.next(func(lane int) bool { return ready[lane] })
			if ok != (ready != [Count]bool{}) || ok && !ready[next] {
				t.Fatalf("lane %d has the turn, %v, and ready are %v", next, ok, ready)
			}
			for lane := range ready {
				if !ready[lane] || lane == next {
					waited[lane] = 0
					continue
				}
				waited[lane]++
				if most := 2 * (15 - shares[lane]); waited[lane] > most {
					t.Fatalf("lane %d has waited for %d turns, at most %d belong to the others", lane, waited[lane], most)
				}
			}
		}
	})
}

func BenchmarkChoose(b *testing.B) {
	for _, keys := range []int{1, 10_000, 200_000} {
		b.Run(fmt.Sprint(keys), func(b *testing.B) {
			var c Counter
			ms := make([]broker.Message, keys)
			for i := range ms {
				ms[i].Key = fmt.Sprint("customer-", i)
			}
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				c.Choose("level", &ms[i%keys])
				i++
			}
		})
	}
}

// TestRepeatedAttemptCountsOnce shows that a submission that is tried again, as during an outage,
// keeps its lane and does not move its key.
func TestRepeatedAttemptCountsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c Counter
		for i := range 100 {
			if lane := c.Choose("level", &broker.Message{ID: "task", Key: "light"}); lane != 0 {
				t.Fatalf("attempt %d has lane %d", i, lane)
			}
			time.Sleep(100 * time.Millisecond)
		}
		if lane := c.Choose("level", &broker.Message{ID: "next", Key: "light"}); lane != 0 {
			t.Errorf("the next task has lane %d", lane)
		}
	})
}

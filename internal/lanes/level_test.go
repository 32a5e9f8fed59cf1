package lanes

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/swarmiji/swarmiji/broker"
)

// TestLevelKeepsWhatItHolds shows that All lists the deliveries in the order of Pop, and that each
// comes once. The deliveries of a key in one lane come in their order.
func TestLevelKeepsWhatItHolds(t *testing.T) {
	for _, fair := range []bool{false, true} {
		t.Run(fmt.Sprint("fair ", fair), func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				level := NewLevel[broker.Message](fair)
				type line struct {
					lane int
					key  string
				}
				lanes := make(map[*broker.Message]int)
				held := make(map[line][]*broker.Message)
				n := 0
				pop := func() {
					want := slices.Clone(level.All())
					got := level.Pop()
					if n == 0 && got == nil && len(want) == 0 {
						return
					}
					if len(want) != n || got != want[0] {
						t.Fatalf("Pop returned %v, and All listed %v of %d", got, want, n)
					}
					n--
					l := line{lanes[got], got.Key}
					if !fair {
						l.key = ""
					}
					if held[l][0] != got {
						t.Fatalf("%v came before %v", got, held[l][0])
					}
					held[l] = held[l][1:]
				}
				for i := range rapid.IntRange(1, 100).Draw(t, "steps") {
					if rapid.IntRange(0, 2).Draw(t, "step") == 0 {
						pop()
						continue
					}
					m := &broker.Message{ID: fmt.Sprint(i), Key: rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "key"), Weight: rapid.IntRange(0, 3).Draw(t, "weight")}
					lane := rapid.IntRange(0, Width(fair)-1).Draw(t, "lane")
					level.Lane(lane).Push(m, m)
					l := line{lane, m.Key}
					if !fair {
						l.key = ""
					}
					lanes[m] = lane
					held[l] = append(held[l], m)
					n++
				}
				if level.Len() != n {
					t.Fatalf("Len is %d, want %d", level.Len(), n)
				}
				for n > 0 {
					pop()
				}
				pop()
			})
		})
	}
}

// TestHeldKeysTakeTurns shows the order of held deliveries, within a lane and over the lanes.
func TestHeldKeysTakeTurns(t *testing.T) {
	level := NewLevel[string](true)
	push := func(lane int, key string, ids ...string) {
		for _, id := range ids {
			level.Lane(lane).Push(&id, &broker.Message{Key: key})
		}
	}
	push(0, "a", "a1", "a2", "a3", "a4", "a5", "a6", "a7", "a8")
	push(3, "heavy", "h1", "h2", "h3")
	push(0, "b", "b1", "b2")
	var got []string
	for id := level.Pop(); id != nil; id = level.Pop() {
		got = append(got, *id)
	}
	want := []string{"a1", "b1", "a2", "b2", "a3", "a4", "a5", "a6", "h1", "a7", "a8", "h2", "h3"}
	if !slices.Equal(got, want) {
		t.Errorf("the order is %v, want %v", got, want)
	}
	push(1, "a", "a9", "a10")
	push(1, "b", "b3")
	for i, id := range level.Lane(1).TakeAll() {
		if want := []string{"a9", "b3", "a10"}[i]; *id != want {
			t.Errorf("TakeAll returned %s as number %d, want %s", *id, i, want)
		}
	}
	if level.Len() != 0 || level.Pop() != nil {
		t.Errorf("%d are held after TakeAll", level.Len())
	}
}

package lanes

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/swarmiji/swarmiji/broker"
)

// never is a wait of [Levels.Pop] that never waits.
func never(int) bool { return false }

// TestAllInTheOrderOfPop shows that All lists the deliveries in the order of Pop, with any floor.
func TestAllInTheOrderOfPop(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		share := rapid.SampledFrom([]float64{0, 0.05, 0.3, 0.5}).Draw(t, "share")
		levels := NewLevels[broker.Message](rapid.IntRange(1, 4).Draw(t, "levels"), rapid.Bool().Draw(t, "fair"), share)
		for i := range rapid.IntRange(1, 100).Draw(t, "steps") {
			if rapid.IntRange(0, 2).Draw(t, "step") > 0 {
				m := &broker.Message{ID: fmt.Sprint(i)}
				levels.Level(rapid.IntRange(0, levels.Len()-1).Draw(t, "level")).Lane(0).Push(m, m)
				continue
			}
			all := levels.All()
			got := levels.Pop(nil, never)
			if len(all) == 0 && got == nil {
				continue
			}
			if len(all) == 0 || got != all[0] {
				t.Fatalf("Pop returned %v, All has listed %v", got, all)
			}
		}
	})
}

// TestFloorOfLevels shows the shares of full levels with a floor of 0.2. A level that may get
// messages is waited for, also if more urgent ones are held.
func TestFloorOfLevels(t *testing.T) {
	levels := NewLevels[broker.Message](3, false, 0.2)
	push := func(level, n int) {
		for range n {
			m := &broker.Message{Priority: level}
			levels.Level(level).Lane(0).Push(m, m)
		}
	}
	for level := range 3 {
		push(level, 100)
	}
	var got [3]int
	for range 100 {
		got[levels.Pop(nil, never).Priority]++
	}
	if got != [3]int{80, 10, 10} {
		t.Errorf("the levels had %v of 100 picks, want 80, 10, 10", got)
	}
	for levels.Level(1).Len() > 0 {
		levels.Level(1).Pop()
	}
	push(0, 100)
	for range 4 {
		levels.Pop(nil, never)
	}
	waits := func(level int) bool { return level == 1 }
	if d := levels.Pop(nil, waits); d != nil {
		t.Errorf("a message of level %d did not wait for one of level 1", d.Priority)
	}
	if d := levels.Pop(nil, never); d == nil || d.Priority != 2 {
		t.Errorf("then came %v, want one of level 2", d)
	}
}

// TestUnusableDeliveries shows that Pop drops deliveries that are not usable.
func TestUnusableDeliveries(t *testing.T) {
	levels := NewLevels[broker.Message](2, false, 0)
	for i := range 4 {
		m := &broker.Message{Priority: i}
		levels.Level(i/2).Lane(0).Push(m, m)
	}
	if d := levels.Pop(func(m *broker.Message) bool { return m.Priority == 3 }, never); d == nil || d.Priority != 3 {
		t.Errorf("got %v, want the only usable one", d)
	}
	if d := levels.Pop(nil, never); d != nil {
		t.Errorf("got %v, which was dropped", d)
	}
}

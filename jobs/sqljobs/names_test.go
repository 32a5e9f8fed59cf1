package sqljobs

import (
	"fmt"
	"slices"
	"testing"
)

// manyNames returns a cache with count names.
func manyNames(count int) *nameCache {
	n := &nameCache{}
	names := make([]string, count)
	for i := range names {
		names[i] = fmt.Sprintf("tenant-%04d/job-%d", i%1000, i)
	}
	n.learn(&learnt{all: true, names: names, mark: mark{number: int64(count)}})
	return n
}

func (n *nameCache) ask(pattern string) []string {
	names, _ := n.match(n.of(pattern), &learnt{readings: n.readings})
	return names
}

// TestManyPatterns shows that each pattern is compared with each name once, however many patterns
// are in use, and finds its names.
func TestManyPatterns(t *testing.T) {
	n := manyNames(2000)
	kept := map[*matched]bool{}
	for round := range 3 {
		for i := range 1000 {
			pattern := []string{fmt.Sprintf("tenant-%04d/*", i), fmt.Sprintf("*-%04d/job*", i)}[i%2]
			m := n.of(pattern)
			if round > 0 && !kept[m] {
				t.Fatalf("round %d: what was known of %q was forgotten", round, pattern)
			}
			kept[m] = true
			if got := n.ask(pattern); len(got) != 2 {
				t.Fatalf("%q matches %d names", pattern, len(got))
			}
		}
	}
	n.learn(&learnt{readings: n.readings, from: n.mark, mark: mark{number: n.mark.number + 2}, names: []string{"tenant-0001/new", "tenant-0000/new", "a"}})
	for pattern, want := range map[string]int{"tenant-0000/*": 3, "*-0001/job*": 2, "tenant-0001/*": 3, "a*": 1, "*new": 2, "z*": 0} {
		if got := n.ask(pattern); len(got) != want {
			t.Errorf("%q matches %d names, want %d", pattern, len(got), want)
		}
	}
}

// TestPatternsAreBounded shows that patterns with many matching names do not fill the memory, and
// still find their names.
func TestPatternsAreBounded(t *testing.T) {
	const names, patterns = 40_000, 35
	n := manyNames(names)
	for i := range 95 { // as if they had matched all names
		m := n.of(fmt.Sprint("earlier-", i))
		m.names, m.upto = n.list, len(n.list)
		n.total += names
	}
	for i := range patterns + 5 {
		// A fifth of the patterns match the names that end in 0 to 4, the others match all names.
		pattern, want := fmt.Sprintf("[^%c]enant-*", 'À'+i%patterns), names
		if i%5 == 0 {
			pattern, want = pattern+"[0-4]", names/2
		}
		if got := n.ask(pattern); len(got) != want || !slices.IsSorted(got) {
			t.Fatalf("%q matches %d names, want %d", pattern, len(got), want)
		}
		if sum := n.remembered(); sum > maxMatched+names {
			t.Fatalf("%d names are remembered", sum)
		}
	}
	if len(n.patterns) >= 95+patterns {
		t.Error("no pattern was removed from the cache: the test shows nothing")
	}
}

func (n *nameCache) remembered() (sum int) {
	for _, m := range n.patterns {
		sum += len(m.names)
	}
	return sum
}

func BenchmarkPatterns(b *testing.B) {
	for _, count := range []int{100, 129, 300, 1000} {
		b.Run(fmt.Sprint(count), func(b *testing.B) {
			n := manyNames(200_000)
			for i := 0; b.Loop(); i++ {
				n.ask(fmt.Sprintf("tenant-%04d/*", i%count))
			}
		})
	}
}

package recent_test

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/swarmiji/swarmiji/inspect/internal/recent"
)

// TestListIsTheEndOfAllValues compares a list with a slice of all values that were added.
func TestListIsTheEndOfAllValues(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.IntRange(1, 5).Draw(t, "size")
		l := recent.New[int](size)
		var all []int
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				v := rapid.IntRange(0, 9).Draw(t, "value")
				_, _, _, more := l.From(l.Next(), 1, func(*int) bool { return true })
				oldest, removed := l.Add(v)
				all = append(all, v)
				if removed != (len(all) > size) || removed && oldest != all[len(all)-size-1] {
					t.Fatalf("Add removed %d, %v from the last %d of %v", oldest, removed, size, all)
				}
				select {
				case <-more:
				default:
					t.Fatal("Add woke no reader")
				}
			},
			"read": func(t *rapid.T) {
				first, n := rapid.IntRange(0, len(all)).Draw(t, "first"), rapid.IntRange(1, 4).Draw(t, "n")
				even := func(v *int) bool { return *v%2 == 0 }
				got, next, lost, _ := l.From(uint64(first), n, even)
				from := max(first, len(all)-size)
				var want []int
				for from < len(all) && len(want) < n {
					if even(&all[from]) {
						want = append(want, all[from])
					}
					from++
				}
				if !slices.Equal(got, want) || next != uint64(from) || lost != (first < len(all)-size) {
					t.Fatalf("From(%d, %d) of %v = %v, %d, %v; want %v, %d", first, n, all, got, next, lost, want, from)
				}
			},
			"": func(t *rapid.T) {
				if l.Next() != uint64(len(all)) {
					t.Fatalf("Next = %d after %d values", l.Next(), len(all))
				}
			},
		})
		_, _, _, more := l.From(0, 1, func(*int) bool { return true })
		l.Close()
		l.Close()
		if <-more; !l.Closed() {
			t.Fatal("the list is not closed")
		}
	})
}

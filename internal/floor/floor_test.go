package floor_test

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/swarmiji/swarmiji/internal/floor"
)

// pick takes from the first level with messages, and returns it. full are the levels that have
// messages; at least one has.
func pick(f *floor.Floor, full []bool) int {
	for i := range full {
		if l := f.At(i, len(full)); full[l] {
			f.Took(l)
			return l
		}
	}
	panic("no level is full")
}

func TestZeroIsStrict(t *testing.T) {
	var f floor.Floor
	for range 100 {
		if l := pick(&f, []bool{false, true, true}); l != 1 {
			t.Fatalf("took from level %d, want 1", l)
		}
	}
}

// TestLevelsTriedOnce draws picks and checks that each pick tries all levels.
func TestLevelsTriedOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := floor.New(rapid.Float64Range(0, 0.5).Draw(t, "share"))
		levels := rapid.IntRange(1, 6).Draw(t, "levels")
		for range rapid.IntRange(0, 50).Draw(t, "picks") {
			var tried []int
			for i := range levels {
				tried = append(tried, f.At(i, levels))
			}
			slices.Sort(tried)
			for i, l := range tried {
				if i != l {
					t.Fatalf("the levels tried are %v", tried)
				}
			}
			f.Took(rapid.IntRange(0, levels-1).Draw(t, "level"))
		}
	})
}

// TestShares draws which levels have messages. The less urgent of them get the share together, and
// equal parts of it while all lower levels are full.
func TestShares(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		share := rapid.Float64Range(0.01, 0.5).Draw(t, "share")
		full := rapid.SliceOfN(rapid.Bool(), 2, 5).
			Filter(func(full []bool) bool { return slices.Contains(full, true) }).Draw(t, "full")
		top := slices.Index(full, true)
		const picks = 5000
		f := floor.New(share)
		got := make([]int, len(full))
		for range picks {
			got[pick(&f, full)]++
		}
		want := 0
		if slices.Contains(full[top+1:], true) {
			want = int(share * picks)
		}
		if lower := picks - got[top]; lower < want-1 || lower > want+1 {
			t.Fatalf("%d of %d picks were lower, want %d; levels %v, picks %v", lower, picks, want, full, got)
		}
		if below := len(full) - 1 - top; !slices.Contains(full[top:], false) && below > 0 {
			for l, n := range got[top+1:] {
				if part := want / below; n < part-2 || n > part+2 {
					t.Fatalf("level %d had %d picks, want %d", top+1+l, n, part)
				}
			}
		}
	})
}

// TestBatches compares claims of many picks with the share.
func TestBatches(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		share := rapid.Float64Range(0, 0.5).Draw(t, "share")
		f := floor.New(share)
		all, lower := 0, 0
		for range rapid.IntRange(1, 100).Draw(t, "claims") {
			n := rapid.IntRange(0, 300).Draw(t, "picks")
			low, first := f.Batch(n, 4)
			if low > n || first < 0 || first > 3 || low > 0 && first == 0 {
				t.Fatalf("%d of %d picks begin lower, the first at level %d", low, n, first)
			}
			f.Claimed(n)
			all, lower = all+n, lower+low
		}
		if want := int(share * float64(all)); lower < want-1 || lower > want+1 {
			t.Fatalf("%d of %d picks began lower, want %d", lower, all, want)
		}
	})
}

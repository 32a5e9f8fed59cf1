package memjobs

import (
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/swarmiji/swarmiji/jobs/jobstore"
)

// TestOrder compares an order with a sorted list while it grows and shrinks.
func TestOrder(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	var o order
	var want []entry
	draw := func() entry {
		return entry{major: int64(r.IntN(3)), minor: int64(r.IntN(50)), id: jobstore.ID(r.IntN(100))}
	}
	for i := range 12_000 {
		e := draw()
		at, found := slices.BinarySearchFunc(want, e, entry.compare)
		grows := i/3000%2 == 0
		switch {
		case !found && (grows || r.IntN(3) == 0):
			want = slices.Insert(want, at, e)
			o.add(e)
		case found && (!grows || r.IntN(3) == 0):
			want = slices.Delete(want, at, at+1)
			o.remove(e)
		case !found:
			o.remove(e) // the order does not contain it
		}
		if i%500 > 0 {
			continue
		}
		if got := slices.Collect(o.from(start)); !slices.Equal(got, want) || o.n != len(want) {
			t.Fatalf("step %d: %d entries, counted as %d, not %d", i, len(got), o.n, len(want))
		}
		e = draw()
		at, _ = slices.BinarySearchFunc(want, e, entry.compare)
		if got := slices.Collect(o.from(e)); !slices.Equal(got, want[at:]) {
			t.Fatalf("step %d: %d entries from %v on, not %d", i, len(got), e, len(want)-at)
		}
		for _, b := range o.blocks {
			if len(b) == 0 || len(b) > blockSize {
				t.Fatalf("step %d: a block of %d", i, len(b))
			}
		}
	}
	for _, e := range want {
		o.remove(e)
	}
	if o.n != 0 || len(o.blocks) != 0 {
		t.Errorf("%d entries in %d blocks are left", o.n, len(o.blocks))
	}
}

// TestNamesAreForgotten shows that the cached names follow the number of existing names.
func TestNamesAreForgotten(t *testing.T) {
	t.Parallel()
	table := newTable()
	sel := &jobstore.Selector{Pattern: "n*"}
	name := func(i int) string { return "n" + string(rune('a'+i%26)) + string(rune(0x1000+i)) }
	for i := range 5_000 {
		id := jobstore.ID(i + 1)
		table.insert(jobstore.Row{Job: jobstore.Job{ID: id, Name: name(i)}, Due: epoch})
		if i%100 == 0 {
			if found := table.findDue(sel, math.MaxInt64, 10); len(found) == 0 || found[0].job.ID != max(1, id-10) {
				t.Fatalf("job %d: %d are due", id, len(found))
			}
		}
		if i >= 10 {
			table.remove(table.byID[id-10])
		}
	}
	if n := len(table.names.list); n > 1000 || len(table.names.byName) != n {
		t.Errorf("%d names are kept, %d in the map, for 10 jobs", n, len(table.names.byName))
	}
}

// TestPatternsAreForgotten uses more patterns than the cache holds, and patterns too long for it.
func TestPatternsAreForgotten(t *testing.T) {
	t.Parallel()
	table := newTable()
	table.insert(jobstore.Row{Job: jobstore.Job{ID: 1, Name: "a"}, Due: epoch})
	find := func(pattern string) {
		if found := table.findDue(&jobstore.Selector{Pattern: pattern}, math.MaxInt64, 1); len(found) != 1 {
			t.Fatalf("pattern %.20q of %d bytes: %d jobs", pattern, len(pattern), len(found))
		}
	}
	for i := range 3 * maxPatterns {
		find("[a" + strconv.Itoa(i) + "]*")
	}
	for n := 1; n <= 3*maxPattern; n += 10 {
		find(strings.Repeat("*", n))
	}
	for p := range table.names.patterns {
		if len(p) > maxPattern {
			t.Errorf("a pattern of %d bytes is remembered", len(p))
		}
	}
	if n := len(table.names.patterns); n > maxPatterns {
		t.Errorf("%d patterns are remembered", n)
	}
}

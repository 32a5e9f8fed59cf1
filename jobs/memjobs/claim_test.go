package memjobs

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/swarmiji/swarmiji/jobs/jobstore"
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// large returns a table of n jobs with 1,000 names and six priorities. Half of them are not due at
// the epoch.
func large(n int) *table {
	t := newTable()
	for i := range n {
		j := jobstore.Row{Job: jobstore.Job{ID: jobstore.ID(i + 1), Name: fmt.Sprintf("name-%03d/x", i*7919%1000), Priority: []int{0, 150, 250, 500, 750, 1000}[i/1000%6], State: jobstore.Queued, Data: []byte("{}")}, Due: epoch.Add(-time.Duration(i%5000) * time.Millisecond)}
		if i/1000%2 == 1 {
			j.Due = epoch.Add(time.Hour)
		}
		t.insert(j)
	}
	return t
}

var patterns = []string{"name-500/x", "name-50*", "*0/x", "*", "nobody*", "name-*9?/x"}

// TestFindDueOfMany compares the results of the indexes with a search through all jobs, for
// patterns with many matching names.
func TestFindDueOfMany(t *testing.T) {
	t.Parallel()
	table := large(8_000)
	// Many jobs of this name are the most urgent ones, so walking through all due jobs does not help.
	for i := range 2000 {
		table.insert(jobstore.Row{Job: jobstore.Job{ID: jobstore.ID(100_000 + i), Name: "urgent", Priority: -1}, Due: epoch})
	}
	for _, p := range append([]string{"n*"}, patterns...) {
		for _, limit := range []int{1, 3, 500} {
			sel := &jobstore.Selector{Pattern: p}
			var want []*record
			m := table.names.matched(p)
			for _, r := range table.byID {
				if m.pattern.Match(r.job.Name) && !r.job.Due.After(epoch) {
					want = append(want, r)
				}
			}
			want = first(want, limit)
			got := table.findDue(sel, micros(epoch), limit)
			if diff := cmp.Diff(ids(want), ids(got)); diff != "" {
				t.Errorf("%s, limit %d (-want +got):\n%s", p, limit, diff)
			}
		}
	}
}

func ids(rs []*record) []jobstore.ID {
	out := make([]jobstore.ID, len(rs))
	for i, r := range rs {
		out[i] = r.job.ID
	}
	return out
}

// TestClaimLooksAtFew counts the entries that a claim reads, instead of its time.
func TestClaimLooksAtFew(t *testing.T) {
	t.Parallel()
	table := large(12_000)
	for k := range table.broad {
		for _, limit := range []int{1, 10} {
			looks := 0
			table.broad[k].dueBy(nil, micros(epoch), nil, limit, math.MaxInt, func(*record) bool { looks++; return true })
			if looks > limit {
				t.Errorf("%d jobs were looked at for %d", looks, limit)
			}
		}
	}
	if _, whole := table.walk(table.names.matched("*"), &jobstore.Selector{Pattern: "*"}, micros(epoch), 1); !whole {
		t.Error("the first job of all was not found among the first few")
	}
	steps := 0
	only := 1000
	table.due.dueBy(nil, micros(epoch), &only, 1, 0, func(*record) bool { steps++; return true })
	if steps > 0 {
		t.Error("a budget of nothing was spent")
	}
}

// BenchmarkClaim claims and ends one job of a million.
func BenchmarkClaim(b *testing.B) {
	table := large(1_000_000)
	for _, p := range patterns {
		b.Run(p, func(b *testing.B) {
			sel := &jobstore.Selector{Pattern: p}
			for b.Loop() {
				for _, r := range table.findDue(sel, micros(epoch), 1) {
					j := r.job
					due := j.Due
					j.Due = time.Time{}
					table.replace(r, j)
					j.Due = due
					table.replace(r, j)
				}
			}
		})
	}
	b.Run("insert and remove", func(b *testing.B) {
		j := table.byID[500_000].job
		j.ID = 5_000_000
		for b.Loop() {
			table.insert(j)
			table.remove(table.byID[j.ID])
		}
	})
}

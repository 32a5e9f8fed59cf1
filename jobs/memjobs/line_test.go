package memjobs

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/swarmiji/swarmiji/jobs/jobstore"
	"github.com/swarmiji/swarmiji/task"
)

// TestLineOfMany compares the indexes of queues with a search through all jobs, during changes.
func TestLineOfMany(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	table := newTable()
	draw := func(id int) jobstore.Row {
		j := jobstore.Row{Job: jobstore.Job{ID: jobstore.ID(id), Name: "a", Queue: []string{"", "q", "p"}[r.IntN(3)], State: []jobstore.State{jobstore.Queued, jobstore.Running, jobstore.Failed}[r.IntN(3)], Priority: r.IntN(4), Weight: int64(r.IntN(3)) * 500, Key: []string{"", "k", "l"}[r.IntN(3)]}}
		if r.IntN(4) > 0 {
			j.Due = epoch.Add(time.Duration(r.IntN(20)-10) * time.Second)
		}
		if r.IntN(4) == 0 {
			j.Expires = epoch.Add(time.Duration(r.IntN(20)-10) * time.Second)
		}
		return j
	}
	for i := range 1500 {
		table.insert(draw(i + 1))
	}
	for range 500 {
		for range 10 {
			if rec := table.byID[jobstore.ID(1+r.IntN(1500))]; rec != nil && r.IntN(5) == 0 {
				table.remove(rec)
			} else if rec != nil {
				table.replace(rec, draw(int(rec.job.ID)))
			}
		}
		l := &jobstore.Line{
			Queue: []string{"q", "p", "none"}[r.IntN(3)], State: []jobstore.State{jobstore.Queued, jobstore.Running}[r.IntN(2)],
			By: epoch.Add(time.Duration(r.IntN(20)-10) * time.Second), Order: jobstore.Order(r.IntN(2)),
		}
		if r.IntN(2) == 0 {
			l.MaxWeight = task.Set(int64(r.IntN(3)) * 400)
		}
		if r.IntN(2) == 0 {
			after := draw(r.IntN(1500))
			l.After = &after
		}
		limit := []int{1, 20, 10_000}[r.IntN(3)]
		got := table.findLine(l, nil, limit)
		if diff := gocmp.Diff(ids(inLine(table, l, limit)), ids(got)); diff != "" {
			t.Fatalf("%+v, limit %d (-want +got):\n%s", l, limit, diff)
		}
		q := query{queue: l.Queue, Page: jobstore.Page{Limit: limit, States: []jobstore.State{jobstore.Failed, jobstore.Queued}}}
		if r.IntN(2) == 0 {
			q = query{name: "a", key: "k", Page: jobstore.Page{After: jobstore.ID(r.IntN(1500))}}
		}
		var all []*record
		n, weight := int64(0), int64(0)
		for e := range table.all.from(start) {
			if matches(&q, &e.rec.job) && (q.Limit == 0 || len(all) < q.Limit) {
				all = append(all, e.rec)
			}
			if e.rec.job.Queue == l.Queue && e.rec.job.State == jobstore.Running {
				n, weight = n+1, weight+e.rec.job.Weight
			}
		}
		if diff := gocmp.Diff(ids(all), ids(table.find(&q))); diff != "" {
			t.Fatalf("%+v (-want +got):\n%s", q, diff)
		}
		if gotN, gotWeight := table.weigh(l.Queue); gotN != n || gotWeight != weight {
			t.Fatalf("%d jobs that weigh %d run, not %d and %d", gotN, gotWeight, n, weight)
		}
	}
	for _, rec := range table.byID {
		table.remove(rec)
	}
	if n := len(table.lines) + len(table.answers) + len(table.unique) + table.expires.n + table.due.n; n != 0 {
		t.Errorf("%d entries are left of jobs that are gone", n)
	}
}

// inLine returns the expected result of findLine.
func inLine(t *table, l *jobstore.Line, limit int) []*record {
	before := func(a, b *jobstore.Row) int {
		first := cmp.Or(a.Due.Compare(b.Due), cmp.Compare(a.Priority, b.Priority))
		if l.Order == jobstore.PriorityFirst {
			first = cmp.Or(cmp.Compare(a.Priority, b.Priority), a.Due.Compare(b.Due))
		}
		return cmp.Or(first, cmp.Compare(a.ID, b.ID))
	}
	var all []*record
	for _, r := range t.byID {
		j := &r.job
		if j.Queue == l.Queue && j.State == l.State && !j.Due.IsZero() && !j.Due.After(l.By) && j.Weight <= l.MaxWeight.Or(math.MaxInt64) && (l.After == nil || before(l.After, j) < 0) {
			all = append(all, r)
		}
	}
	slices.SortFunc(all, func(a, b *record) int { return before(&a.job, &b.job) })
	return all[:min(limit, len(all))]
}

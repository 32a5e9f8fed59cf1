package jobs_test

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/jobs/jobstore"
	"github.com/swarmiji/swarmiji/jobs/queue"
)

// modelQueue is a simple implementation of the rules of a queue, over plain lists.
type modelQueue struct {
	limit    int64 // in thousandths; 0: no limit
	order    jobs.Order
	strict   bool
	parts    map[string]int64
	line     []modelJob
	running  map[jobs.ID]modelJob
	throttle bool
}

type modelJob struct {
	id       jobs.ID
	priority int
	weight   int64
	share    string
	due      time.Time
}

func (m *modelQueue) sum(share string, all bool) (sum int64) {
	for _, j := range m.running {
		if all || j.share == share {
			sum += j.weight
		}
	}
	return sum
}

// room reports whether a weight fits into a limit of which taken is used.
func room(limit, taken, weight int64) bool {
	return weight == 0 || taken+weight <= limit || weight > limit && taken == 0 && limit > 0
}

// look starts all jobs that may start, one after the other.
func (m *modelQueue) look() (started []jobs.ID) {
	slices.SortFunc(m.line, func(a, b modelJob) int {
		byTime, byPriority := a.due.Compare(b.due), cmp.Compare(a.priority, b.priority)
		if m.order == jobs.PriorityFirst {
			byTime, byPriority = byPriority, byTime
		}
		return cmp.Or(byTime, byPriority, cmp.Compare(a.id, b.id))
	})
	blocked := false
	m.line = slices.DeleteFunc(m.line, func(j modelJob) bool {
		part, shared := m.parts[j.share]
		if blocked || m.throttle && shared && !room(part, m.sum(j.share, false), j.weight) {
			return false
		}
		if m.limit > 0 && !room(m.limit, m.sum("", true), j.weight) {
			blocked = m.strict
			return false
		}
		m.running[j.id] = j
		started = append(started, j.id)
		return true
	})
	return started
}

// TestQueueAgainstModel compares the started jobs with a simple model of the rules: no limit is
// exceeded, and every job that fits starts.
// Promises: Q18.
func TestQueueAgainstModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		m := &modelQueue{
			limit:    rapid.SampledFrom([]int64{0, 1000, 2500, 7000, 10_000}).Draw(r, "limit"),
			order:    rapid.SampledFrom([]jobs.Order{jobs.TimeFirst, jobs.PriorityFirst}).Draw(r, "order"),
			strict:   rapid.Bool().Draw(r, "strict"),
			throttle: rapid.Bool().Draw(r, "throttle"),
			parts:    map[string]int64{"a": rapid.SampledFrom([]int64{0, 1000, 3000}).Draw(r, "part a"), "b": 2500},
			running:  map[jobs.ID]modelJob{},
		}
		q := queue.Queue{Limit: float64(m.limit) / 1000, Order: m.order, Strict: m.strict}
		if m.throttle {
			q.Throttler = queue.Shares(shareOf, map[string]float64{"a": float64(m.parts["a"]) / 1000, "b": 2.5})
		}
		steps := rapid.SliceOfN(genModelStep(), 1, 30).Draw(r, "steps")
		problem := ""
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, false, jobs.Config{})
			l := w.lead(q, "n")
			w.now(l)
			for i := 0; i < len(steps) && problem == ""; i++ {
				problem = m.play(w, l, &steps[i])
			}
		})
		if problem != "" {
			r.Fatal(problem)
		}
	})
}

// modelStep contains the changes between two admissions: one running job may end, and new jobs
// come.
type modelStep struct {
	end  int // index of the job that ends; below 0: no job ends
	jobs []modelJob
	ages []int // in minutes
}

func genModelStep() *rapid.Generator[modelStep] {
	weights := rapid.SampledFrom([]int64{0, 1, 250, 500, 999, 1000, 1000, 1000, 1500, 2000, 3000, 5000, 20_000})
	job := rapid.Custom(func(r *rapid.T) modelJob {
		return modelJob{
			priority: rapid.IntRange(1, 3).Draw(r, "priority"), weight: weights.Draw(r, "weight"),
			share: rapid.SampledFrom([]string{"a", "b", "c"}).Draw(r, "share"),
		}
	})
	return rapid.Custom(func(r *rapid.T) modelStep {
		s := modelStep{end: rapid.IntRange(-8, 20).Draw(r, "end"), jobs: rapid.SliceOfN(job, 0, 4).Draw(r, "jobs")}
		s.ages = rapid.SliceOfN(rapid.IntRange(0, 3), len(s.jobs), len(s.jobs)).Draw(r, "ages")
		return s
	})
}

// play applies a step and returns a description of a difference.
func (m *modelQueue) play(w *world, l *leader, s *modelStep) string {
	if n := len(m.running); n > 0 && s.end >= 0 {
		id := sortedIDs(m.running)[s.end%n]
		delete(m.running, id)
		w.over(id)
	}
	for i, j := range s.jobs {
		j.due = time.Now().Add(-time.Duration(s.ages[i]) * time.Minute)
		j.id = w.enqueue(jobs.Row{Job: jobs.Job{Name: fmt.Sprint(j.share, ".", j.weight), Weight: j.weight, Priority: j.priority, NextRun: j.due}})
		m.line = append(m.line, j)
	}
	want := m.look()
	if got := idsOf(w.renewed(l, m.running)); !slices.Equal(got, want) {
		return fmt.Sprintf("started %v, want %v", got, want)
	}
	n, weight := w.runningIn("q")
	if int(n) != len(m.running) || m.limit > 0 && weight > m.limit && heavy(m.running) != 1 {
		return fmt.Sprintf("%d jobs of weight %d run; %d should", n, weight, len(m.running))
	}
	return ""
}

// heavy counts the jobs with a weight.
func heavy(running map[jobs.ID]modelJob) (n int) {
	for _, j := range running {
		if j.weight > 0 {
			n++
		}
	}
	return n
}

func sortedIDs(running map[jobs.ID]modelJob) []jobs.ID {
	ids := make([]jobs.ID, 0, len(running))
	for id := range running {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

// renewed renews the leases of running jobs and returns the jobs that are started.
func (w *world) renewed(l *leader, running map[jobs.ID]modelJob) []jobs.Handout {
	w.ok(w.store.Update(w.Context(), func(ctx context.Context, tx jobstore.Tx) error {
		for id := range running {
			j, err := tx.Get(ctx, id)
			if err != nil {
				return err
			}
			if j.State == jobs.Running {
				j.Due = time.Now().Add(time.Hour)
				if err := tx.Save(ctx, &j); err != nil {
					return err
				}
			}
		}
		return nil
	}))
	return w.now(l)
}

func idsOf(out []jobs.Handout) []jobs.ID {
	var ids []jobs.ID
	for i := range out {
		ids = append(ids, out[i].ID)
	}
	return ids
}

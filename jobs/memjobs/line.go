package memjobs

import (
	"math"
	"time"

	"github.com/swarmiji/swarmiji/jobs/jobstore"
)

// place is where a job of a queue stands.
type place struct {
	queue string
	state jobstore.State
}

// line is the jobs of a queue that have one state.
type line struct {
	all      order // by id
	byTime   order // those with a Due: by it, then by priority
	byUrgent order // the same by priority, then by Due
	byWeight order // the same by weight
	weight   int64 // of all
}

func (r *record) byTime() entry {
	return entry{major: micros(r.job.Due), minor: int64(r.job.Priority), id: r.job.ID, rec: r}
}

func (r *record) byWeight() entry { return entry{major: r.job.Weight, id: r.job.ID, rec: r} }

// enqueue enters a job of a queue into its line.
func (t *table) enqueue(r *record) {
	at := place{r.job.Queue, r.job.State}
	l := t.lines[at]
	if l == nil {
		l = &line{}
		t.lines[at] = l
	}
	l.all.add(r.byID())
	l.weight += r.job.Weight
	if !r.job.Due.IsZero() {
		l.byTime.add(r.byTime())
		l.byUrgent.add(r.byPriority())
		l.byWeight.add(r.byWeight())
	}
}

func (t *table) dequeue(r *record) {
	at := place{r.job.Queue, r.job.State}
	l := t.lines[at]
	l.all.remove(r.byID())
	l.weight -= r.job.Weight
	if !r.job.Due.IsZero() {
		l.byTime.remove(r.byTime())
		l.byUrgent.remove(r.byPriority())
		l.byWeight.remove(r.byWeight())
	}
	if l.all.n == 0 {
		delete(t.lines, at)
	}
}

// findLine returns what stands in a line and is due, at most limit of it.
func (t *table) findLine(q *jobstore.Line, now func() time.Time, limit int) []*record {
	l := t.lines[place{q.Queue, q.State}]
	if l == nil {
		return nil
	}
	most := q.MaxWeight.Or(math.MaxInt64)
	for e := range l.byWeight.from(start) {
		if e.major > most { // so is every other one: a full queue does not go through its line
			return nil
		}
		break
	}
	light := func(r *record) bool { return r.job.Weight <= most }
	by := until(q.By, now)
	if q.Order == jobstore.PriorityFirst {
		found, _ := l.byUrgent.dueFrom(cursor(q, (*record).byPriority), nil, by, nil, limit, math.MaxInt, light)
		return found
	}
	var found []*record
	for e := range l.byTime.from(cursor(q, (*record).byTime)) {
		if e.major > by || len(found) == limit {
			break
		}
		if light(e.rec) {
			found = append(found, e.rec)
		}
	}
	return found
}

// cursor is the first place after a job, wherever it stands now.
func cursor(q *jobstore.Line, by func(*record) entry) entry {
	if q.After == nil {
		return start
	}
	e := by(&record{job: *q.After})
	e.id++
	return e
}

// weigh adds up what runs in a queue.
func (t *table) weigh(queue string) (n, weight int64) {
	for _, s := range states {
		if l := t.lines[place{queue, s}]; l != nil && s.Runs() {
			n, weight = n+int64(l.all.n), weight+l.weight
		}
	}
	return n, weight
}

package memjobs

import (
	"math"
	"time"

	"github.com/swarmiji/swarmiji/jobs/jobstore"
)

// lineKey identifies a line: a queue and a state.
type lineKey struct {
	queue string
	state jobstore.State
}

// line contains the jobs of a queue that are in one state.
type line struct {
	all      order // by id
	byTime   order // those with a Due: by Due, then by priority
	byUrgent order // those with a Due: by priority, then by Due
	byWeight order // those with a Due: by weight
	weight   int64 // sum over all
}

// byTime returns the entry of the job in an order by Due and priority.
func (r *record) byTime() entry {
	return entry{major: micros(r.job.Due), minor: int64(r.job.Priority), id: r.job.ID, rec: r}
}

// byWeight returns the entry of the job in an order by weight.
func (r *record) byWeight() entry { return entry{major: r.job.Weight, id: r.job.ID, rec: r} }

// enqueue adds a job of a queue to the line of its queue and state, which it creates if it is
// missing. It does not change the job. A job without a Due counts in the line's weight, but has no
// place in the orders of due jobs. Call it with the table locked.
func (t *table) enqueue(r *record) {
	at := lineKey{r.job.Queue, r.job.State}
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

// dequeue removes a job of a queue from the line of its queue and state, and deletes the line if
// it is then empty. It does not change the job. Call it before these fields change; the line must
// contain the job. Call it with the table locked.
func (t *table) dequeue(r *record) {
	at := lineKey{r.job.Queue, r.job.State}
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

// findLine returns up to limit due records of the queue and state of q, in the order that q asks
// for. It leaves out jobs heavier than q.MaxWeight and jobs up to q.After. A zero q.By means the
// result of now. Call it with the table locked.
func (t *table) findLine(q *jobstore.Line, now func() time.Time, limit int) []*record {
	l := t.lines[lineKey{q.Queue, q.State}]
	if l == nil {
		return nil
	}
	most := q.MaxWeight.Or(math.MaxInt64)
	for e := range l.byWeight.from(start) {
		if e.major > most { // All other jobs are at least as heavy, so a full queue is not searched.
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

// cursor returns the first position after the job q.After, in an order whose positions by computes.
// The job need not be stored there. Without q.After it returns start, the position before all
// entries.
func cursor(q *jobstore.Line, by func(*record) entry) entry {
	if q.After == nil {
		return start
	}
	e := by(&record{job: *q.After})
	e.id++
	return e
}

// weigh returns the number of running jobs of a queue (RUNNING and RUNQUEUED) and the sum of their
// weights. Both are 0 for an unknown queue. Call it with the table locked.
func (t *table) weigh(queue string) (n, weight int64) {
	for _, s := range states {
		if l := t.lines[lineKey{queue, s}]; l != nil && s.Runs() {
			n, weight = n+int64(l.all.n), weight+l.weight
		}
	}
	return n, weight
}

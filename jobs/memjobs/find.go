package memjobs

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/swarmiji/swarmiji/jobs/jobstore"
)

// query asks for jobs. All that is set must hold of a job.
type query struct {
	jobstore.Page
	ids       []jobstore.ID // not nil: these
	name      string
	sequence  string
	parent    jobstore.ID
	queue     string
	uniqueKey string // with a name
	key       string // with a name
}

// find returns what q asks for.
func (t *table) find(q *query) []*record {
	switch {
	case q.After == math.MaxInt64:
		return nil
	case q.ids != nil:
		ids := slices.Clone(q.ids)
		slices.Sort(ids)
		var found []*record
		for _, id := range slices.Compact(ids) {
			if r := t.byID[id]; r != nil && matches(q, &r.job) {
				if found = append(found, r); len(found) == q.Limit {
					break
				}
			}
		}
		return found
	}
	var found []*record
	among := t.among(q)
	for _, o := range among {
		found = append(found, matching(o, q)...)
	}
	if len(among) > 1 {
		slices.SortFunc(found, func(a, b *record) int { return cmp.Compare(a.job.ID, b.job.ID) })
	}
	if q.Limit > 0 && len(found) > q.Limit {
		found = found[:q.Limit]
	}
	return found
}

// matching returns the first records of an order by id that q asks for.
func matching(o *order, q *query) (found []*record) {
	for e := range o.from(entry{id: q.After + 1}) {
		if matches(q, &e.rec.job) {
			if found = append(found, e.rec); len(found) == q.Limit {
				break
			}
		}
	}
	return found
}

// expired returns the first records whose Expires is not after by, at most limit.
func (t *table) expired(by time.Time, limit int) (found []*record) {
	for e := range t.expires.from(start) {
		if e.major > micros(by) || len(found) == limit {
			break
		}
		found = append(found, e.rec)
	}
	return found
}

// among returns the fewest orders by id in which all are that q asks for.
func (t *table) among(q *query) []*order {
	best := []*order{&t.all}
	size := t.all.n
	take := func(list ...*order) {
		n := 0
		for _, o := range list {
			n += o.n
		}
		if n < size {
			best, size = list, n
		}
	}
	if q.name != "" {
		take(listOf(t.names.order(q.name))...)
	}
	if q.sequence != "" {
		take(listOf(t.keys[q.sequence])...)
	}
	if q.parent != 0 {
		take(listOf(t.children[q.parent])...)
	}
	if q.queue != "" {
		take(t.inQueue(q)...)
	}
	if q.name != "" && q.key != "" {
		take(listOf(t.answers[[2]string{q.name, q.key}])...)
	}
	if q.name != "" && q.uniqueKey != "" {
		take(listOf(t.unique[[2]string{q.name, q.uniqueKey}])...)
	}
	return best
}

func listOf(o *order) []*order {
	if o == nil {
		return nil
	}
	return []*order{o}
}

// inQueue returns the orders by id of a queue's jobs, of the states that are asked for.
func (t *table) inQueue(q *query) (list []*order) {
	for _, s := range states {
		if q.States != nil && !slices.Contains(q.States, s) {
			continue
		}
		if l := t.lines[place{q.queue, s}]; l != nil {
			list = append(list, &l.all)
		}
	}
	return list
}

// states are all states that a job may have.
var states = [...]jobstore.State{
	jobstore.Queued, jobstore.RunQueued, jobstore.Running, jobstore.Paused, jobstore.Waiting, jobstore.Finished, jobstore.Failed, jobstore.Cancelled,
}

func matches(q *query, j *jobstore.Row) bool {
	return j.ID > q.After &&
		(q.ids == nil || slices.Contains(q.ids, j.ID)) &&
		(q.name == "" || j.Name == q.name) &&
		(q.States == nil || slices.Contains(q.States, j.State)) &&
		(q.sequence == "" || j.SequenceKey == q.sequence) &&
		(q.parent == 0 || j.Parent == q.parent) &&
		(q.queue == "" || j.Queue == q.queue) &&
		(q.uniqueKey == "" || j.UniqueKey == q.uniqueKey) &&
		(q.key == "" || j.Key == q.key)
}

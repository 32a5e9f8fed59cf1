package memjobs

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/swarmiji/swarmiji/jobs/jobstore"
)

// query selects the jobs that match all set fields.
type query struct {
	jobstore.Page
	ids    []jobstore.ID // not nil: only jobs with these ids
	name   string
	parent jobstore.ID
	queue  string
	key    string // requires name
}

// find returns the records that q selects, in the order of ids, at most q.Limit of them; a Limit
// of 0 means all. Repeated ids count once, and missing ids are left out. Call it with the table
// locked.
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
	among := t.smallestOrders(q)
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

// lowestIDs returns, for each group, the lowest id of its jobs that are in one of the states; nil
// states mean any state. Groups without such a job are left out. Call it with the table locked.
func (t *table) lowestIDs(states []jobstore.State, groups []jobstore.Group) map[jobstore.Group]jobstore.ID {
	found := make(map[jobstore.Group]jobstore.ID, len(groups))
	for _, g := range groups {
		var o *order
		switch g.By {
		case jobstore.ByKey:
			o = t.answers[[2]string{g.Name, g.Key}]
		case jobstore.ByUniqueKey:
			o = t.unique[[2]string{g.Name, g.Key}]
		case jobstore.BySequence:
			o = t.keys[g.Key]
		default:
			o = t.names.order(g.Name)
		}
		if o == nil {
			continue
		}
		for e := range o.from(start) {
			if j := &e.rec.job; j.In(g) && (states == nil || slices.Contains(states, j.State)) {
				found[g] = j.ID
				break
			}
		}
	}
	return found
}

// matching returns the records of an order by id that q selects, in the order of ids, up to the
// limit of q. A limit of 0 means all.
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

// expired returns up to limit records whose Expires is not after by, in the order of Expires. Call
// it with the table locked.
func (t *table) expired(by time.Time, limit int) (found []*record) {
	for e := range t.expires.from(start) {
		if e.major > micros(by) || len(found) == limit {
			break
		}
		found = append(found, e.rec)
	}
	return found
}

// smallestOrders returns orders by id that together contain all jobs that q selects, and may
// contain other jobs. Of several possibilities it chooses the one with the fewest entries. Call it
// with the table locked.
func (t *table) smallestOrders(q *query) []*order {
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
	if q.parent != 0 {
		take(listOf(t.children[q.parent])...)
	}
	if q.queue != "" {
		take(t.inQueue(q)...)
	}
	if q.name != "" && q.key != "" {
		take(listOf(t.answers[[2]string{q.name, q.key}])...)
	}
	return best
}

// listOf returns a list that contains o, or nil if o is nil.
func listOf(o *order) []*order {
	if o == nil {
		return nil
	}
	return []*order{o}
}

// inQueue returns the orders by id that contain the jobs of q's queue in the states of q, one for
// each state that has jobs. nil states mean any state. Call it with the table locked.
func (t *table) inQueue(q *query) (list []*order) {
	for _, s := range states {
		if q.States != nil && !slices.Contains(q.States, s) {
			continue
		}
		if l := t.lines[lineKey{q.queue, s}]; l != nil {
			list = append(list, &l.all)
		}
	}
	return list
}

// states contains all states of a job.
var states = [...]jobstore.State{
	jobstore.Queued, jobstore.RunQueued, jobstore.Running, jobstore.Paused, jobstore.Waiting, jobstore.Finished, jobstore.Failed, jobstore.Cancelled,
}

// matches reports whether q selects the job j: all set fields match, and the id is above q.After.
// It ignores q.Limit.
func matches(q *query, j *jobstore.Row) bool {
	return j.ID > q.After &&
		(q.ids == nil || slices.Contains(q.ids, j.ID)) &&
		(q.name == "" || j.Name == q.name) &&
		(q.States == nil || slices.Contains(q.States, j.State)) &&
		(q.parent == 0 || j.Parent == q.parent) &&
		(q.queue == "" || j.Queue == q.queue) &&
		(q.key == "" || j.Key == q.key)
}

package memjobs

import (
	"cmp"
	"math"
	"slices"

	"github.com/swarmiji/swarmiji/jobs"
)

// find returns what q asks for, which is neither what is due nor a line.
func (t *table) find(q *jobs.Query) []*record {
	switch {
	case q.After == math.MaxInt64:
		return nil
	case !q.Expired.IsZero():
		return t.findExpired(q)
	case q.IDs != nil:
		ids := slices.Clone(q.IDs)
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
func matching(o *order, q *jobs.Query) (found []*record) {
	for e := range o.from(entry{id: q.After + 1}) {
		if matches(q, &e.rec.job) {
			if found = append(found, e.rec); len(found) == q.Limit {
				break
			}
		}
	}
	return found
}

// findExpired returns what has expired, the first to do so first.
func (t *table) findExpired(q *jobs.Query) (found []*record) {
	until := micros(q.Expired)
	for e := range t.expires.from(start) {
		if e.major > until || q.Limit > 0 && len(found) == q.Limit {
			break
		}
		if matches(q, &e.rec.job) {
			found = append(found, e.rec)
		}
	}
	return found
}

// among returns the fewest orders by id in which all are that q asks for.
func (t *table) among(q *jobs.Query) []*order {
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
	if q.Name != "" {
		take(listOf(t.names.order(q.Name))...)
	}
	if q.SequenceKey != "" {
		take(listOf(t.keys[q.SequenceKey])...)
	}
	if q.Parent != 0 {
		take(listOf(t.children[q.Parent])...)
	}
	if q.Queue != "" {
		take(t.inQueue(q)...)
	}
	if q.Name != "" && q.Key != "" {
		take(listOf(t.answers[[2]string{q.Name, q.Key}])...)
	}
	if q.Name != "" && q.UniqueKey != "" {
		take(listOf(t.unique[[2]string{q.Name, q.UniqueKey}])...)
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
func (t *table) inQueue(q *jobs.Query) (list []*order) {
	for _, s := range states {
		if q.States != nil && !slices.Contains(q.States, s) {
			continue
		}
		if l := t.lines[place{q.Queue, s}]; l != nil {
			list = append(list, &l.all)
		}
	}
	return list
}

// states are all states that a job may have.
var states = [...]jobs.State{
	jobs.Queued, jobs.RunQueued, jobs.Running, jobs.Paused, jobs.Waiting, jobs.Finished, jobs.Failed, jobs.Cancelled,
}

func matches(q *jobs.Query, j *jobs.Row) bool {
	return j.ID > q.After &&
		(q.IDs == nil || slices.Contains(q.IDs, j.ID)) &&
		(q.Name == "" || j.Name == q.Name) &&
		(q.States == nil || slices.Contains(q.States, j.State)) &&
		(q.SequenceKey == "" || j.SequenceKey == q.SequenceKey) &&
		(q.Parent == 0 || j.Parent == q.Parent) &&
		(q.Queue == "" || j.Queue == q.Queue) &&
		(q.UniqueKey == "" || j.UniqueKey == q.UniqueKey) &&
		(q.Key == "" || j.Key == q.Key) &&
		(q.Expired.IsZero() || !j.Expires.IsZero() && !j.Expires.After(q.Expired))
}

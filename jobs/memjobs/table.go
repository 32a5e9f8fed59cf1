package memjobs

import (
	"time"

	"github.com/swarmiji/swarmiji/jobs/jobstore"
)

// record is a stored job and the set of its name.
type record struct {
	job  jobstore.Row
	name *nameset
}

// micros returns a time as orders sort it: microseconds since 1970.
func micros(t time.Time) int64 { return t.UnixMicro() }

// table contains the jobs and their indexes, which are orders of records. One goroutine at a time
// uses it: a transaction that has locked the core.
type table struct {
	last     jobstore.ID // the id of the newest job
	byID     map[jobstore.ID]*record
	all      order             // by id
	due      order             // jobs without a queue that have a Due, by Due
	broad    [2]order          // the same by priority and Due: plain jobs and mock jobs
	keys     map[string]*order // by sequence key
	children map[jobstore.ID]*order
	lines    map[lineKey]*line    // jobs of queues
	answers  map[[2]string]*order // by name and key
	unique   map[[2]string]*order // by name and unique key
	expires  order                // those with an Expires, by Expires
	names    names

	answerTable answerTable
	leases      map[string]*jobstore.QueueLease // by queue
}

// newTable returns an empty table.
func newTable() *table {
	return &table{
		byID: map[jobstore.ID]*record{}, keys: map[string]*order{}, children: map[jobstore.ID]*order{}, lines: map[lineKey]*line{},
		answers: map[[2]string]*order{}, unique: map[[2]string]*order{}, names: newNames(), answerTable: newAnswerTable(),
		leases: map[string]*jobstore.QueueLease{},
	}
}

// mock returns 1 for a mock job, else 0: the index in broad and in nameset.due.
func mock(j *jobstore.Row) int {
	if j.Mock {
		return 1
	}
	return 0
}

// insert adds a job, with its id, to the table and all indexes. The table must not contain the id.
// The table keeps j's memory. Call it with the table locked.
func (t *table) insert(j jobstore.Row) {
	r := &record{job: j, name: t.names.use(j.Name)}
	t.byID[j.ID] = r
	t.all.add(r.byID())
	t.link(r)
	t.linkDue(r)
}

// remove deletes a record from the table and all indexes, and releases the set of its name
// (names.release). r keeps its job. Call it with the table locked.
func (t *table) remove(r *record) {
	t.unlinkDue(r)
	t.unlink(r)
	t.all.remove(r.byID())
	delete(t.byID, r.job.ID)
	t.names.release(r.name)
}

// replace replaces the job of a record by j, which has the same id. It updates only the indexes
// whose fields differ. The table keeps j's memory. Call it with the table locked.
func (t *table) replace(r *record, j jobstore.Row) {
	old := &r.job
	renamed := old.Name != j.Name
	relink := renamed || old.SequenceKey != j.SequenceKey || old.Parent != j.Parent || old.Key != j.Key || old.UniqueKey != j.UniqueKey ||
		!old.Expires.Equal(j.Expires)
	requeue := renamed || !old.Due.Equal(j.Due) || old.Priority != j.Priority || old.Mock != j.Mock || old.Queue != j.Queue ||
		j.Queue != "" && (old.State != j.State || old.Weight != j.Weight)
	if requeue {
		t.unlinkDue(r)
	}
	if relink {
		t.unlink(r)
	}
	r.job = j
	if renamed {
		left := r.name
		r.name = t.names.use(j.Name)
		t.names.release(left)
	}
	if relink {
		t.link(r)
	}
	if requeue {
		t.linkDue(r)
	}
}

// byID returns the entry of the job in an order by id.
func (r *record) byID() entry { return entry{id: r.job.ID, rec: r} }

// byDue returns the entry of the job in an order by Due.
func (r *record) byDue() entry { return entry{major: micros(r.job.Due), id: r.job.ID, rec: r} }

// byExpiry returns the entry of the job in an order by Expires.
func (r *record) byExpiry() entry { return entry{major: micros(r.job.Expires), id: r.job.ID, rec: r} }

// byPriority returns the entry of the job in an order by priority and Due.
func (r *record) byPriority() entry {
	return entry{major: int64(r.job.Priority), minor: micros(r.job.Due), id: r.job.ID, rec: r}
}

// link adds a record to the indexes by name, keys, parent and expiry. Unset keys, parent and
// Expires are not indexed. Indexes of due jobs need linkDue. Call it with the table locked.
func (t *table) link(r *record) {
	r.name.jobs.add(r.byID())
	if k := r.job.SequenceKey; k != "" {
		addTo(t.keys, k, r.byID())
	}
	if p := r.job.Parent; p != 0 {
		addTo(t.children, p, r.byID())
	}
	if r.job.Key != "" {
		addTo(t.answers, [2]string{r.job.Name, r.job.Key}, r.byID())
	}
	if r.job.UniqueKey != "" {
		addTo(t.unique, [2]string{r.job.Name, r.job.UniqueKey}, r.byID())
	}
	if !r.job.Expires.IsZero() {
		t.expires.add(r.byExpiry())
	}
}

// unlink removes a record from the indexes by name, keys, parent and expiry. Call it before these
// fields change. Call it with the table locked.
func (t *table) unlink(r *record) {
	r.name.jobs.remove(r.byID())
	if k := r.job.SequenceKey; k != "" {
		removeFrom(t.keys, k, r.byID())
	}
	if p := r.job.Parent; p != 0 {
		removeFrom(t.children, p, r.byID())
	}
	if r.job.Key != "" {
		removeFrom(t.answers, [2]string{r.job.Name, r.job.Key}, r.byID())
	}
	if r.job.UniqueKey != "" {
		removeFrom(t.unique, [2]string{r.job.Name, r.job.UniqueKey}, r.byID())
	}
	if !r.job.Expires.IsZero() {
		t.expires.remove(r.byExpiry())
	}
}

// linkDue adds a job of a queue to the line of its queue and state, whatever its Due. It adds any
// other job to the indexes of due jobs, unless its Due is zero. Call it with the table locked.
func (t *table) linkDue(r *record) {
	if r.job.Queue != "" {
		t.enqueue(r)
		return
	}
	if r.job.Due.IsZero() {
		return
	}
	t.due.add(r.byDue())
	t.broad[mock(&r.job)].add(r.byPriority())
	r.name.due[mock(&r.job)].add(r.byPriority())
}

// unlinkDue removes a record from the indexes of due jobs, or from the line of its queue. Call it
// before these fields change. Call it with the table locked.
func (t *table) unlinkDue(r *record) {
	if r.job.Queue != "" {
		t.dequeue(r)
		return
	}
	if r.job.Due.IsZero() {
		return
	}
	t.due.remove(r.byDue())
	t.broad[mock(&r.job)].remove(r.byPriority())
	r.name.due[mock(&r.job)].remove(r.byPriority())
}

// addTo adds e to the order with the key k, which it creates if it is missing.
func addTo[K comparable](m map[K]*order, k K, e entry) {
	o := m[k]
	if o == nil {
		o = &order{}
		m[k] = o
	}
	o.add(e)
}

// removeFrom removes e from the order with the key k, and deletes the order when it is empty.
func removeFrom[K comparable](m map[K]*order, k K, e entry) {
	o := m[k]
	if o == nil {
		return
	}
	if o.remove(e); o.n == 0 {
		delete(m, k)
	}
}

// coming returns up to most names of jobs whose Due is after since and not after now, each once,
// in the order of Due. More reports that further names are due. Next is the first Due after now;
// zero if no job has one. A zero since returns no names. Jobs of queues are ignored. Call it with
// the table locked.
func (t *table) coming(since, now time.Time, most int) jobstore.Coming {
	c := jobstore.Coming{Now: now}
	for e := range t.due.from(entry{major: micros(now) + 1}) {
		c.Next = e.rec.job.Due
		break
	}
	if since.IsZero() {
		return c
	}
	seen := map[*nameset]bool{}
	for e := range t.due.from(entry{major: micros(since) + 1}) {
		if e.major > micros(now) {
			break
		}
		if seen[e.rec.name] {
			continue
		}
		if len(c.Names) == most {
			c.More = true
			break
		}
		seen[e.rec.name] = true
		c.Names = append(c.Names, e.rec.name.name)
	}
	return c
}

package memjobs

import (
	"time"

	"github.com/swarmiji/swarmiji/jobs/jobstore"
)

// record is a job and where it stands in the orders.
type record struct {
	job  jobstore.Row
	name *nameset
}

// micros is a time as orders go by.
func micros(t time.Time) int64 { return t.UnixMicro() }

// table holds the jobs, and the orders in which they are found. One goroutine uses it at a time.
type table struct {
	last     jobstore.ID // the id given out last
	byID     map[jobstore.ID]*record
	all      order             // by id
	due      order             // those with a Due, by time
	broad    [2]order          // those with a Due, by priority and time: of plain jobs, and of mocks
	keys     map[string]*order // by sequence key
	children map[jobstore.ID]*order
	lines    map[place]*line      // of queues
	answers  map[[2]string]*order // by name and key
	unique   map[[2]string]*order // by name and unique key
	expires  order                // those that expire, by time
	names    names

	answerTable answerTable
	leases      map[string]*jobstore.QueueLease // by queue
}

func newTable() *table {
	return &table{
		byID: map[jobstore.ID]*record{}, keys: map[string]*order{}, children: map[jobstore.ID]*order{}, lines: map[place]*line{},
		answers: map[[2]string]*order{}, unique: map[[2]string]*order{}, names: newNames(), answerTable: newAnswerTable(),
		leases: map[string]*jobstore.QueueLease{},
	}
}

// mock is the index of the order by priority in which a job stands.
func mock(j *jobstore.Row) int {
	if j.Mock {
		return 1
	}
	return 0
}

// insert adds a job that is not there.
func (t *table) insert(j jobstore.Row) {
	r := &record{job: j, name: t.names.use(j.Name)}
	t.byID[j.ID] = r
	t.all.add(r.byID())
	t.link(r)
	t.queue(r)
}

// remove takes a job away that is there.
func (t *table) remove(r *record) {
	t.unqueue(r)
	t.unlink(r)
	t.all.remove(r.byID())
	delete(t.byID, r.job.ID)
	t.names.release(r.name)
}

// replace puts j in the place of what the record holds, which has the same id.
func (t *table) replace(r *record, j jobstore.Row) {
	old := &r.job
	renamed := old.Name != j.Name
	relink := renamed || old.SequenceKey != j.SequenceKey || old.Parent != j.Parent || old.Key != j.Key || old.UniqueKey != j.UniqueKey ||
		!old.Expires.Equal(j.Expires)
	requeue := renamed || !old.Due.Equal(j.Due) || old.Priority != j.Priority || old.Mock != j.Mock || old.Queue != j.Queue ||
		j.Queue != "" && (old.State != j.State || old.Weight != j.Weight)
	if requeue {
		t.unqueue(r)
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
		t.queue(r)
	}
}

func (r *record) byID() entry  { return entry{id: r.job.ID, rec: r} }
func (r *record) byDue() entry { return entry{major: micros(r.job.Due), id: r.job.ID, rec: r} }

func (r *record) byExpiry() entry { return entry{major: micros(r.job.Expires), id: r.job.ID, rec: r} }

func (r *record) byPriority() entry {
	return entry{major: int64(r.job.Priority), minor: micros(r.job.Due), id: r.job.ID, rec: r}
}

// link enters a job where it is found by name, keys, parent and expiry.
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

// queue enters a job where those are found that are due, or into the line of its queue.
func (t *table) queue(r *record) {
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

func (t *table) unqueue(r *record) {
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

func addTo[K comparable](m map[K]*order, k K, e entry) {
	o := m[k]
	if o == nil {
		o = &order{}
		m[k] = o
	}
	o.add(e)
}

func removeFrom[K comparable](m map[K]*order, k K, e entry) {
	o := m[k]
	if o == nil {
		return
	}
	if o.remove(e); o.n == 0 {
		delete(m, k)
	}
}

// coming returns the names of jobs whose Due lies after since and not after now, and the first Due after now.
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

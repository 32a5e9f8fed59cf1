package waitlist

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/swarmiji/swarmiji/internal/glob"
	"github.com/swarmiji/swarmiji/jobs/jobstore"
)

// List has all that ask for jobs. Those who ask for the same are one group, for which one goroutine at a time takes as many jobs as there are askers, and
// hands them out in the order in which they came; so that many who ask cost one transaction, and ten thousand that wait no goroutine, and no timer, of
// ours. A group that nobody asks in is gone.
type List struct {
	c      Config
	Base   context.Context // of takes: what was taken has to reach somebody, so that no asker's ctx ends them
	cancel context.CancelFunc

	mu      sync.Mutex
	closed  bool
	groups  map[string]*group
	arrived uint64        // numbers those who ask
	ready   []*group      // to be served, by one of the workers
	workers int           // that run
	active  int           // goroutines that run, the look-out included
	idle    chan struct{} // closed when active is 0 after close
	Look    watcher
}

const (
	maxWorkers  = 32               // groups that are served at a time
	takeTimeout = 30 * time.Second // for a store that does not answer
)

// group is those who ask for the same.
type group struct {
	key   string
	sel   jobstore.Selector
	lease time.Duration
	match glob.Pattern // of sel.Pattern

	line    list.List // of *asker, in the order of arrival
	wants   int       // how many jobs they ask for together
	waiting int       // how many of them wait
	known   bool      // to the look-out, which has asked when a job for them becomes due
	state   groupState
	again   bool            // something has happened since it is being served
	names   map[string]bool // of jobs that there is word of: when there is one more than are asked for here, others are to hear of it
}

type groupState int

const (
	resting groupState = iota
	queued
	served
)

// asker is one Get.
type asker struct {
	number uint64
	max    int
	wait   bool
	answer chan answer // has room for the only one
	place  *list.Element
}

type answer struct {
	jobs []jobstore.Handout
	err  error
}

// Config is what a list of waiters needs of the service. All of it is set.
type Config struct {
	Store jobstore.Store
	Log   *slog.Logger
	// Poll is how often the list looks by itself.
	Poll time.Duration
	// Take hands out up to limit jobs; none is no error. With an error there may be jobs, too.
	Take func(ctx context.Context, sel jobstore.Selector, lease time.Duration, limit int) ([]jobstore.Handout, error)
	// GiveBack undoes a hand-out that nobody has seen.
	GiveBack func(h jobstore.Handout)
	// Waiting counts those that wait.
	Waiting *atomic.Int64
	// Limit is how many jobs are taken at a time at most.
	Limit int
}

// New returns an empty list. It starts no goroutine.
func New(c Config) *List {
	w := &List{c: c, groups: map[string]*group{}, idle: make(chan struct{})}
	w.Base, w.cancel = context.WithCancel(context.Background())
	w.Look.init(w.Base)
	return w
}

// groupKey is the same for those who ask for the same.
func groupKey(r *jobstore.Selector, lease time.Duration) string {
	var b strings.Builder
	b.WriteString(strconv.FormatInt(int64(lease), 10))
	if r.Mock {
		b.WriteByte('m')
	}
	if p, set := r.Priority.Get(); set {
		b.WriteByte('p')
		b.WriteString(strconv.Itoa(p))
	}
	if r.Pattern != "" {
		b.WriteByte('*')
		b.WriteString(r.Pattern)
		return b.String()
	}
	for _, name := range r.Names {
		b.WriteByte(0)
		b.WriteString(name)
	}
	return b.String()
}

// Get asks for at most limit jobs, and waits for the answer.
func (w *List) Get(ctx context.Context, sel jobstore.Selector, lease time.Duration, limit int, wait bool) ([]jobstore.Handout, error) {
	if err := ctx.Err(); err != nil {
		return nil, gone(ctx, wait)
	}
	key := groupKey(&sel, lease)
	a := &asker{max: limit, wait: wait, answer: make(chan answer, 1)}
	w.mu.Lock()
	if w.closed {
		w.mu.Unlock()
		return nil, jobstore.ErrClosed
	}
	g := w.groups[key]
	if g == nil {
		g = &group{key: key, sel: sel, lease: lease}
		g.sel.Names = slices.Clone(sel.Names) // it may outlive this call
		w.groups[key] = g
	}
	w.arrived++
	a.number = w.arrived
	a.place = g.line.PushBack(a)
	g.wants += a.max
	if a.wait {
		w.startWaiting(g)
	}
	w.rouse(g)
	w.mu.Unlock()

	select {
	case got := <-a.answer:
		return got.jobs, got.err
	case <-ctx.Done():
	}
	w.mu.Lock()
	if a.place == nil { // the answer was there first
		w.mu.Unlock()
		got := <-a.answer
		return got.jobs, got.err
	}
	w.leave(g, a)
	w.mu.Unlock()
	return nil, gone(ctx, wait)
}

// gone is the answer to who does not wait any longer.
func gone(ctx context.Context, wait bool) error {
	if wait {
		return jobstore.ErrNoJob
	}
	return fmt.Errorf("%w: %w", jobstore.ErrUnavailable, context.Cause(ctx))
}

// rouse has a group served, once more if it is being served. w is locked, here and below.
func (w *List) rouse(g *group) {
	switch g.state {
	case served:
		g.again = true
	case resting:
		g.state = queued
		w.ready = append(w.ready, g)
		if w.workers < maxWorkers {
			w.workers++
			w.active++
			go w.work()
		}
	case queued:
	}
}

// leave takes an asker out of its line.
func (w *List) leave(g *group, a *asker) {
	g.line.Remove(a.place)
	a.place = nil
	g.wants -= a.max
	if a.wait {
		w.stopWaiting(g)
	}
	w.forget(g)
}

// forget drops a group that nobody asks in.
func (w *List) forget(g *group) {
	if g.line.Len() == 0 && g.state == resting {
		delete(w.groups, g.key)
	}
}

func (w *List) reply(g *group, a *asker, got answer) {
	w.leave(g, a)
	a.answer <- got
}

// work serves groups until none is ready.
func (w *List) work() {
	w.mu.Lock()
	for len(w.ready) > 0 {
		g := w.ready[0]
		w.ready[0] = nil
		w.ready = w.ready[1:]
		g.state = served
		w.serve(g)
	}
	w.ready = nil
	w.workers--
	w.ended()
	w.mu.Unlock()
}

// ended notes that a goroutine ends.
func (w *List) ended() {
	if w.active--; w.active == 0 && w.closed {
		close(w.idle)
	}
}

// serve takes jobs for a group and hands them out. w is unlocked while the store works.
func (w *List) serve(g *group) {
	g.again = false
	if g.line.Len() > 0 {
		w.serveLine(g)
	}
	empty := g.line.Len() == 0
	g.state = resting
	switch {
	case g.again && !empty:
		w.rouse(g)
	case g.names != nil:
		names := g.names
		g.names = nil
		if empty { // there may be more jobs than were asked for here
			w.Look.dispatch(w, names)
		}
	}
	w.forget(g)
}

func (w *List) serveLine(g *group) {
	limit := min(g.wants, w.c.Limit)
	last := w.arrived // who comes from now on may miss what this look has missed
	w.mu.Unlock()
	ctx, cancel := context.WithTimeout(w.Base, takeTimeout)
	jobs, err := w.c.Take(ctx, g.sel, g.lease, limit)
	cancel()
	w.mu.Lock()

	full := len(jobs) == limit
	jobs = w.deal(g, jobs)
	if err == nil && full {
		g.again = true
	} else {
		w.answerRest(g, last, err)
		if g.waiting > 0 {
			w.stays(g)
		}
	}
	if len(jobs) == 0 {
		return
	}
	w.mu.Unlock()
	for i := range jobs {
		w.c.GiveBack(jobs[i])
	}
	w.mu.Lock()
}

// deal hands jobs out, and returns those that nobody is left for.
func (w *List) deal(g *group, jobs []jobstore.Handout) []jobstore.Handout {
	for len(jobs) > 0 && g.line.Len() > 0 {
		a := g.line.Front().Value.(*asker)
		n := min(a.max, len(jobs))
		w.reply(g, a, answer{jobs: jobs[:n:n]})
		jobs = jobs[n:]
	}
	return jobs
}

// answerRest answers those for whom there is no job: who does not wait and was there when the store was asked, and all of them when the store refuses.
// Those who wait outlast a store that is away. Who does not wait is at the end of the line, or nearly.
func (w *List) answerRest(g *group, last uint64, err error) {
	refused := err != nil && !errors.Is(err, jobstore.ErrUnavailable)
	if err == nil {
		err = jobstore.ErrNoJob
	}
	once := g.line.Len() - g.waiting
	for e := g.line.Back(); e != nil && (refused || once > 0); {
		a := e.Value.(*asker)
		e = e.Prev()
		if !a.wait {
			once--
		}
		if refused || (!a.wait && a.number <= last) {
			w.reply(g, a, answer{err: err})
		}
	}
}

// Close ends all that wait, and waits for what runs.
func (w *List) Close(ctx context.Context) error {
	w.mu.Lock()
	if !w.closed {
		w.closed = true
		for _, g := range w.groups {
			for g.line.Len() > 0 {
				w.reply(g, g.line.Front().Value.(*asker), answer{err: jobstore.ErrClosed})
			}
		}
		w.Look.end()
		if w.active == 0 {
			close(w.idle)
		}
	}
	w.mu.Unlock()
	select {
	case <-w.idle:
		w.cancel()
		return nil
	case <-ctx.Done():
		w.cancel()
		return context.Cause(ctx)
	}
}

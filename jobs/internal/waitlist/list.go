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
	"github.com/swarmiji/swarmiji/jobs/internal/page"
	"github.com/swarmiji/swarmiji/jobs/jobstore"
)

// List holds all callers of Get. Callers with the same Selector and lease form one group. For a
// group one goroutine at a time claims as many jobs as its callers ask for. It gives them out in
// the order in which the callers came.
//
// So many callers cost one transaction, and ten thousand waiting callers cost no goroutine and no
// timer of the list. A group without callers is deleted. Safe for concurrent use.
type List struct {
	c      Config
	Base   context.Context // of claims: they must not end with one caller's ctx
	cancel context.CancelFunc

	mu      sync.Mutex
	closed  bool
	groups  map[string]*group
	arrived uint64        // numbers the callers
	ready   []*group      // groups that wait for a worker
	workers int           // workers that run
	active  int           // goroutines that run, the watcher included
	idle    chan struct{} // closed when active is 0 after Close
	Look    watcher
	size    page.Size // of the calls of Take for several callers
}

const (
	// takeBytes is how many bytes the jobs of one call of Take for several callers should have.
	// firstTake is the limit of the first call.
	takeBytes, firstTake = 8 << 20, 64

	maxWorkers  = 32               // groups served at a time
	takeTimeout = 30 * time.Second // for a store that does not answer
)

// group is the callers with the same Selector and lease.
type group struct {
	key   string
	sel   jobstore.Selector
	lease time.Duration
	match glob.Pattern // of sel.Pattern

	line    list.List // of *caller, in the order of arrival
	wants   int       // sum of max of its callers
	waiting int       // callers that wait
	known   bool      // the watcher has asked when their next job becomes due
	state   groupState
	again   bool // serve it once more
	// names of jobs that words came of; other groups hear of them if a job is left
	names map[string]bool
}

type groupState int

const (
	resting groupState = iota
	queued
	served
)

// caller is one call of Get.
type caller struct {
	number uint64
	max    int
	wait   bool
	answer chan answer // its buffer holds the one answer
	place  *list.Element
}

type answer struct {
	jobs []jobstore.Handout
	err  error
}

// Config is what a List needs of the service. All fields are required.
type Config struct {
	Store jobstore.Store
	Log   *slog.Logger
	// Poll is the time between polls of the store.
	Poll time.Duration
	// Take claims up to limit jobs; none is no error. With an error there may be jobs, too.
	Take func(ctx context.Context, sel jobstore.Selector, lease time.Duration, limit int) ([]jobstore.Handout, error)
	// GiveBack undoes a claim that no caller has seen.
	GiveBack func(h jobstore.Handout)
	// Waiting counts the callers that wait.
	Waiting *atomic.Int64
	// Limit is the most jobs that one call of Take claims.
	Limit int
}

// New returns an empty list. It starts no goroutine.
func New(c Config) *List {
	w := &List{c: c, groups: map[string]*group{}, idle: make(chan struct{}), size: page.Size{Bytes: takeBytes, First: firstTake, Most: c.Limit}}
	w.Base, w.cancel = context.WithCancel(context.Background())
	w.Look.init(w.Base)
	return w
}

// groupKey returns the same text for callers of one group.
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

// Get returns at most limit jobs. With wait it waits until there is one, or ctx ends.
//
// Returns ErrNoJob if no job is due, or ctx ends while it waits. Returns ErrUnavailable if ctx ends
// without wait, and ErrClosed after Close.
func (w *List) Get(ctx context.Context, sel jobstore.Selector, lease time.Duration, limit int, wait bool) ([]jobstore.Handout, error) {
	if err := ctx.Err(); err != nil {
		return nil, gone(ctx, wait)
	}
	key := groupKey(&sel, lease)
	a := &caller{max: limit, wait: wait, answer: make(chan answer, 1)}
	w.mu.Lock()
	if w.closed {
		w.mu.Unlock()
		return nil, jobstore.ErrClosed
	}
	g := w.groups[key]
	if g == nil {
		g = &group{key: key, sel: sel, lease: lease}
		g.sel.Names = slices.Clone(sel.Names) // the group may outlive this call
		w.groups[key] = g
	}
	w.arrived++
	a.number = w.arrived
	a.place = g.line.PushBack(a)
	g.wants += a.max
	if a.wait {
		w.startWaiting(g)
	}
	w.makeReady(g)
	w.mu.Unlock()

	select {
	case got := <-a.answer:
		return got.jobs, got.err
	case <-ctx.Done():
	}
	w.mu.Lock()
	if a.place == nil { // the answer came before ctx ended
		w.mu.Unlock()
		got := <-a.answer
		return got.jobs, got.err
	}
	w.leave(g, a)
	w.mu.Unlock()
	return nil, gone(ctx, wait)
}

// gone returns the error of a caller whose ctx has ended.
func gone(ctx context.Context, wait bool) error {
	if wait {
		return jobstore.ErrNoJob
	}
	return fmt.Errorf("%w: %w", jobstore.ErrUnavailable, context.Cause(ctx))
}

// makeReady makes a group ready, or asks for one more pass if a worker serves it. The caller holds
// w.mu, here and below.
func (w *List) makeReady(g *group) {
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

// leave removes a caller from its group.
func (w *List) leave(g *group, a *caller) {
	g.line.Remove(a.place)
	a.place = nil
	g.wants -= a.max
	if a.wait {
		w.stopWaiting(g)
	}
	w.forget(g)
}

// forget deletes a group without callers.
func (w *List) forget(g *group) {
	if g.line.Len() == 0 && g.state == resting {
		delete(w.groups, g.key)
	}
}

// reply answers a caller and removes it.
func (w *List) reply(g *group, a *caller, got answer) {
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

// ended counts the end of a goroutine.
func (w *List) ended() {
	if w.active--; w.active == 0 && w.closed {
		close(w.idle)
	}
}

// serve claims jobs for a group and gives them out. It unlocks w.mu while the store works.
func (w *List) serve(g *group) {
	g.again = false
	if g.line.Len() > 0 {
		w.serveLine(g)
	}
	empty := g.line.Len() == 0
	g.state = resting
	switch {
	case g.again && !empty:
		w.makeReady(g)
	case g.names != nil:
		names := g.names
		g.names = nil
		if empty { // more jobs may be left than this group asked for
			w.Look.dispatch(w, names)
		}
	}
	w.forget(g)
}

// serveLine calls Take once for a group with callers. It gives back jobs that no caller is left
// for.
func (w *List) serveLine(g *group) {
	first := g.line.Front().Value.(*caller)
	limit := min(g.wants, max(first.max, w.size.Limit()))
	last := w.arrived // callers that come later were not part of this call of Take
	w.mu.Unlock()
	ctx, cancel := context.WithTimeout(w.Base, takeTimeout)
	jobs, err := w.c.Take(ctx, g.sel, g.lease, limit)
	cancel()
	w.mu.Lock()

	full := len(jobs) == limit
	w.size.Read(len(jobs), page.Handouts(jobs))
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

// deal gives jobs to callers, and returns the jobs that are left.
func (w *List) deal(g *group, jobs []jobstore.Handout) []jobstore.Handout {
	for len(jobs) > 0 && g.line.Len() > 0 {
		a := g.line.Front().Value.(*caller)
		n := min(a.max, len(jobs))
		w.reply(g, a, answer{jobs: jobs[:n:n]})
		jobs = jobs[n:]
	}
	return jobs
}

// answerRest answers callers that got no job:
//
//   - if the store refused the call, all of them;
//   - else the callers that do not wait and came no later than last.
//
// Callers that wait outlast a store that is unavailable. Callers that do not wait stand near the
// end of the line.
func (w *List) answerRest(g *group, last uint64, err error) {
	refused := err != nil && !errors.Is(err, jobstore.ErrUnavailable)
	if err == nil {
		err = jobstore.ErrNoJob
	}
	once := g.line.Len() - g.waiting
	for e := g.line.Back(); e != nil && (refused || once > 0); {
		a := e.Value.(*caller)
		e = e.Prev()
		if !a.wait {
			once--
		}
		if refused || (!a.wait && a.number <= last) {
			w.reply(g, a, answer{err: err})
		}
	}
}

// Close answers all callers with ErrClosed, and waits for the goroutines to end. Returns the cause
// of ctx if ctx ends first.
func (w *List) Close(ctx context.Context) error {
	w.mu.Lock()
	if !w.closed {
		w.closed = true
		for _, g := range w.groups {
			for g.line.Len() > 0 {
				w.reply(g, g.line.Front().Value.(*caller), answer{err: jobstore.ErrClosed})
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

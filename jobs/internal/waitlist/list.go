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

// List contains the running calls of Get. Callers with the same Selector and lease form a group.
// One goroutine at a time serves a group: it claims as many jobs as its callers want, and assigns
// them in the order of the calls.
//
// Thus many callers cost one transaction, and ten thousand waiting callers cost no goroutine and no
// timer of the list. A group without callers is deleted. Safe for concurrent use.
type List struct {
	c      Config
	Base   context.Context // context of claims, which must not end with the ctx of one caller
	cancel context.CancelFunc

	mu      sync.Mutex
	closed  bool
	groups  map[string]*group
	arrived uint64        // number of the last caller
	ready   []*group      // groups that wait for a worker
	workers int           // running workers
	active  int           // running goroutines, the watcher included
	idle    chan struct{} // closed when active is 0 after Close
	Watcher watcher
	size    page.Size // sizes for calls of Take that serve several callers
}

const (
	// takeBytes is the wanted total size in bytes of the jobs that one Take returns for several
	// callers. firstTake is the limit of the first such Take.
	takeBytes, firstTake = 8 << 20, 64

	maxWorkers  = 32               // groups served at a time
	takeTimeout = 30 * time.Second // for a store that does not reply
)

// group contains the callers with the same Selector and lease.
type group struct {
	key   string
	sel   jobstore.Selector
	lease time.Duration
	match glob.Pattern // of sel.Pattern

	line    list.List // of *caller, in the order of arrival
	wants   int       // sum of max of its callers
	waiting int       // callers that wait
	known   bool      // the watcher was told that its callers wait
	state   groupState
	again   bool // serve it once more
	// names contains the job names that woke this group. The watcher wakes another group for them if
	// jobs may be left.
	names map[string]bool
}

// groupState is the state of a group: resting (no worker is needed), queued (it waits for a worker)
// or served (a worker claims jobs for it).
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
	answer chan answer // buffered, for the one answer
	place  *list.Element
}

// answer is the reply to a caller: at least one job, or an error.
type answer struct {
	jobs []jobstore.Handout
	err  error
}

// Config contains the parts of the service that a List uses. All fields are required.
type Config struct {
	Store jobstore.Store
	Log   *slog.Logger
	// Poll is the interval between polls of the store.
	Poll time.Duration
	// Take claims up to limit jobs. No due job is not an error. It can return an error together with
	// claimed jobs.
	Take func(ctx context.Context, sel jobstore.Selector, lease time.Duration, limit int) ([]jobstore.Handout, error)
	// GiveBack undoes a claim that no caller has received.
	GiveBack func(h jobstore.Handout)
	// Waiting counts the waiting callers.
	Waiting *atomic.Int64
	// Limit is the maximum number of jobs that one call of Take claims.
	Limit int
}

// New returns an empty list. It starts no goroutine and does no I/O. Close the list after use.
func New(c Config) *List {
	w := &List{c: c, groups: map[string]*group{}, idle: make(chan struct{}), size: page.Size{Bytes: takeBytes, First: firstTake, Most: c.Limit}}
	w.Base, w.cancel = context.WithCancel(context.Background())
	w.Watcher.init(w.Base)
	return w
}

// groupKey returns the key of the group of a caller. It is equal for callers with the same lease,
// Mock and Priority, and the same Pattern or the same Names in the same order. All other callers
// have another key.
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

// Get claims due jobs that sel selects and returns at most limit of them. With wait it blocks until
// a job is due or ctx ends. Callers with equal sel and lease form a group and get jobs in the order
// of their calls. It takes w.mu.
//
// Returns at least one job or an error: ErrNoJob if no job is due, or if ctx ends while it waits.
// Returns ErrUnavailable if ctx ends without wait or the store does not reply; with wait it waits
// for the store. Returns ErrClosed after Close, and any other error of Take unchanged. Jobs that
// come after ctx has ended go to the next caller or are given back.
func (w *List) Get(ctx context.Context, sel jobstore.Selector, lease time.Duration, limit int, wait bool) ([]jobstore.Handout, error) {
	if err := ctx.Err(); err != nil {
		return nil, ctxError(ctx, wait)
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
	return nil, ctxError(ctx, wait)
}

// ctxError returns the error of a caller whose ctx has ended: ErrNoJob with wait, else
// ErrUnavailable.
func ctxError(ctx context.Context, wait bool) error {
	if wait {
		return jobstore.ErrNoJob
	}
	return fmt.Errorf("%w: %w", jobstore.ErrUnavailable, context.Cause(ctx))
}

// makeReady lets a worker goroutine serve a group, by its state. Call it with w.mu held.
//
//   - resting: it queues the group, and starts a worker goroutine if fewer than maxWorkers run.
//   - queued: nothing changes.
//   - served, which means that a worker serves the group now: the group is served once more.
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

// leave takes a out of the line of its group g without sending it a reply. It sets a.place to nil
// and subtracts a.max from g.wants. If a waits, stopWaiting lowers the number of waiting callers.
// It deletes g if g has no callers left and is not served or queued. Call it with w.mu held, once
// per caller.
func (w *List) leave(g *group, a *caller) {
	g.line.Remove(a.place)
	a.place = nil
	g.wants -= a.max
	if a.wait {
		w.stopWaiting(g)
	}
	w.forget(g)
}

// forget deletes a group that has no callers and is not served or queued. It does nothing to any
// other group. Call it with w.mu held.
func (w *List) forget(g *group) {
	if g.line.Len() == 0 && g.state == resting {
		delete(w.groups, g.key)
	}
}

// reply removes a caller from its group and sends it the answer, the only one it gets. It does not
// block, since the channel is buffered. Call it with w.mu held.
func (w *List) reply(g *group, a *caller, got answer) {
	w.leave(g, a)
	a.answer <- got
}

// work serves ready groups, one after the other, until no group is ready. It runs in a goroutine
// that makeReady has counted. It takes w.mu itself; serve releases it during calls of the store.
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

// ended records that a goroutine of the list ends. After Close the last one closes w.idle, for
// which Close waits. Call it with w.mu held.
func (w *List) ended() {
	if w.active--; w.active == 0 && w.closed {
		close(w.idle)
	}
}

// serve claims jobs for a group and replies to its callers (serveLine). Call it with w.mu held; it
// releases w.mu during calls of the store.
//
// If the group must be served once more, it queues the group again. If the group has no callers
// left, it deletes the group, and the watcher wakes another group for the same job names: more
// jobs may be due.
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
		if empty { // more jobs may be due than this group wanted
			w.Watcher.dispatch(w, names)
		}
	}
	w.forget(g)
}

// serveLine calls Take once for a group that has callers, and gives its jobs to the first callers.
// It gives back jobs that no caller wants any more. Call it with w.mu held; it releases w.mu
// during calls of the store. Take is cancelled after takeTimeout. The sizes of the jobs set the
// limit of the next Take (w.size).
//
// If Take returned as many jobs as asked for, more may be due: it then sets g.again, so that serve
// queues the group again. Otherwise answerRest replies to callers that do not wait, or to all if
// the store refused the call. The watcher learns that the others still wait (stillWaiting).
func (w *List) serveLine(g *group) {
	first := g.line.Front().Value.(*caller)
	limit := min(g.wants, max(first.max, w.size.Limit()))
	last := w.arrived // callers with a higher number were not part of this call of Take
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
			w.stillWaiting(g)
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

// deal gives jobs to the first callers of a group, at most max to each, and replies to them. They
// leave the group. It returns the jobs that are left when no caller is left. Call it with w.mu
// held.
func (w *List) deal(g *group, jobs []jobstore.Handout) []jobstore.Handout {
	for len(jobs) > 0 && g.line.Len() > 0 {
		a := g.line.Front().Value.(*caller)
		n := min(a.max, len(jobs))
		w.reply(g, a, answer{jobs: jobs[:n:n]})
		jobs = jobs[n:]
	}
	return jobs
}

// answerRest replies to callers of g that got no job. err is the error of Take, or nil. It replies
//
//   - to all of them with err, if the store refused the call with an error other than
//     ErrUnavailable;
//   - else to callers that do not wait and have a number up to last, with ErrNoJob or err.
//
// Callers with a higher number came after the call of Take. Callers that wait stay while the store
// is unavailable. Call it with w.mu held.
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

// Close replies ErrClosed to all callers, ends the watcher, and waits until the goroutines of the
// list have ended. Later calls of Get return ErrClosed. Running claims are completed and given
// back.
//
// Returns the cause of ctx if ctx ends first; running claims are then cancelled. It takes w.mu.
// Idempotent.
func (w *List) Close(ctx context.Context) error {
	w.mu.Lock()
	if !w.closed {
		w.closed = true
		for _, g := range w.groups {
			for g.line.Len() > 0 {
				w.reply(g, g.line.Front().Value.(*caller), answer{err: jobstore.ErrClosed})
			}
		}
		w.Watcher.end()
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

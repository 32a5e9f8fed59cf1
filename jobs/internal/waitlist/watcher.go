package waitlist

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/swarmiji/swarmiji/internal/glob"
	"github.com/swarmiji/swarmiji/internal/wake"
	"github.com/swarmiji/swarmiji/jobs/jobstore"
	"github.com/swarmiji/swarmiji/task"
)

// watcher is the state of the one goroutine that runs while callers wait. It gets the store's words
// of jobs with a Due, and asks when the next job becomes due. It also polls, since words may be
// missing.
//
// Of the groups that a job may be for, it wakes the one whose first caller waits longest. The other
// groups are woken if a second job is left.
type watcher struct {
	running  bool
	waiting  int // callers that wait
	names    map[string]map[*group]bool
	patterns map[*group]bool
	heard    map[string]bool // names that words came of
	all      bool            // a word came of any name
	fresh    bool            // a group began to wait that may have missed words
	kick     wake.Signal
	Ctx      context.Context // of its calls of the store; end cancels it
	end      context.CancelFunc
}

const (
	linger    = 5 * time.Second // how long the watcher runs on without callers
	gap       = 2 * time.Millisecond
	maxHeard  = 1024 // names that are distinguished
	maxProbes = 256  // groups that one probe looks for
)

func (l *watcher) init(ctx context.Context) {
	l.names, l.patterns, l.heard = map[string]map[*group]bool{}, map[*group]bool{}, map[string]bool{}
	l.kick = wake.New()
	l.Ctx, l.end = context.WithCancel(ctx)
}

// startWaiting counts a caller that waits. The caller holds w.mu.
func (w *List) startWaiting(g *group) {
	w.c.Waiting.Add(1)
	l := &w.Look
	l.waiting++
	if g.waiting++; g.waiting == 1 {
		g.known = false
		if g.sel.Pattern != "" {
			g.match = glob.Compile(g.sel.Pattern)
			l.patterns[g] = true
		}
		for _, name := range g.sel.Names {
			if l.names[name] == nil {
				l.names[name] = map[*group]bool{}
			}
			l.names[name][g] = true
		}
	}
	if !l.running {
		l.running = true
		w.active++
		go w.lookOut()
	}
}

// stays notes that callers of a group still wait after it was served.
func (w *List) stays(g *group) {
	if !g.known {
		g.known, w.Look.fresh = true, true
		w.Look.kick.Notify()
	}
}

// stopWaiting is the opposite of startWaiting.
func (w *List) stopWaiting(g *group) {
	w.c.Waiting.Add(-1)
	l := &w.Look
	l.waiting--
	if g.waiting--; g.waiting > 0 {
		return
	}
	delete(l.patterns, g)
	for _, name := range g.sel.Names {
		if delete(l.names[name], g); len(l.names[name]) == 0 {
			delete(l.names, name)
		}
	}
}

// hear records words. The store calls it.
func (w *List) hear(names []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	l := &w.Look
	if names == nil {
		l.all = true
	}
	some := l.all
	for _, name := range names {
		if l.names[name] == nil && (len(l.patterns) == 0 || strings.HasPrefix(name, jobstore.NoName)) {
			// no caller asks for it, or it is of a queue, whose jobs Get does not claim
			continue
		}
		some = true
		if len(l.heard) >= maxHeard {
			l.all = true
			break
		}
		l.heard[name] = true
	}
	if some {
		l.kick.Notify()
	}
}

// class is the part of a Selector besides names. If one group of a class gets no job of a name, no
// other group of the class does.
type class struct {
	priority task.Opt[int]
	mock     bool
}

// dispatch wakes one group of each class for each name, and reports whether there was any. The
// caller holds w.mu.
func (l *watcher) dispatch(w *List, names map[string]bool) bool {
	some := false
	for name := range names {
		first := map[class]*group{}
		for g := range l.names[name] {
			g.older(first)
		}
		for g := range l.patterns {
			if g.match.Match(name) {
				g.older(first)
			}
		}
		for _, g := range first {
			some = true
			if g.names == nil {
				g.names = map[string]bool{}
			}
			if len(g.names) < maxHeard {
				g.names[name] = true
			} else {
				l.all = true
			}
			w.makeReady(g)
		}
	}
	return some
}

// older puts g into first if its first caller waits longest in its class.
func (g *group) older(first map[class]*group) {
	c := class{g.sel.Priority, g.sel.Mock}
	if f := first[c]; f == nil || g.line.Front().Value.(*caller).number < f.line.Front().Value.(*caller).number {
		first[c] = g
	}
}

// lookOut runs until no caller has waited for the time linger.
func (w *List) lookOut() {
	l := &w.Look
	unwatch := w.c.Store.Watch(w.hear)
	defer unwatch()
	timer := time.NewTimer(0) // the first look is at once
	defer timer.Stop()
	var c coming
	idleSince := time.Time{}
	for {
		select {
		case <-l.Ctx.Done():
			w.mu.Lock()
			l.running = false
			w.ended()
			w.mu.Unlock()
			return
		case <-l.kick:
		case <-timer.C:
		}
		w.mu.Lock()
		heard, all, fresh := l.heard, l.all, l.fresh
		l.heard, l.all, l.fresh = map[string]bool{}, false, false
		if l.waiting == 0 {
			if idleSince.IsZero() {
				idleSince = time.Now()
			} else if time.Since(idleSince) >= linger {
				l.running = false
				w.ended()
				w.mu.Unlock()
				return
			}
			w.mu.Unlock()
			timer.Reset(linger)
			continue
		}
		idleSince = time.Time{}
		if l.dispatch(w, heard) || fresh {
			c.soon() // the job may not be due yet
		}
		w.mu.Unlock()
		w.lookOnce(l.Ctx, &c, all)
		timer.Reset(time.Until(c.look))
	}
}

// coming is when the watcher acts next. Its times are of this process, but for since.
type coming struct {
	since   time.Time // the store's time up to which all due jobs were seen
	asked   time.Time
	look    time.Time // when to call ask again
	poll    time.Time // when to probe for missed words
	trouble bool      // the store did not answer
}

// soon lets the next call of ask come after the gap.
func (c *coming) soon() {
	if at := c.asked.Add(gap); at.Before(c.look) {
		c.look = at
	}
}

// lookOnce calls ask and probe if their time has come.
func (w *List) lookOnce(ctx context.Context, c *coming, all bool) {
	now := time.Now()
	if !now.Before(c.poll) {
		all = true
	}
	if !now.Before(c.look) {
		more, err := w.ask(ctx, c)
		w.troubled(ctx, c, err)
		all = all || more
	}
	if all {
		c.poll = now.Add(w.c.Poll)
		w.troubled(ctx, c, w.probe(ctx))
	}
	if c.poll.Before(c.look) {
		c.look = c.poll
	}
}

// ask asks the store for names of jobs that became due, and wakes their groups. more reports that
// other names may be due.
func (w *List) ask(ctx context.Context, c *coming) (more bool, err error) {
	c.asked = time.Now()
	c.look = c.asked.Add(w.c.Poll)
	due, err := w.c.Store.Coming(ctx, c.since, maxHeard)
	if err != nil {
		return false, err
	}
	more = c.since.IsZero() || due.More
	c.since = due.Now
	if !due.Next.IsZero() {
		wait := max(due.Next.Sub(due.Now)+time.Microsecond, gap)
		if at := time.Now().Add(wait); wait < w.c.Poll && at.Before(c.look) {
			c.look = at
		}
	}
	if len(due.Names) > 0 {
		names := make(map[string]bool, len(due.Names))
		for _, name := range due.Names {
			names[name] = true
		}
		w.mu.Lock()
		w.Look.dispatch(w, names)
		w.mu.Unlock()
	}
	return more, nil
}

// probe wakes the groups that a job is due for, of at most maxProbes groups. It locks no row.
func (w *List) probe(ctx context.Context) error {
	var some []*group
	w.mu.Lock()
	for _, g := range w.groups {
		if g.waiting > 0 {
			if some = append(some, g); len(some) == maxProbes {
				break
			}
		}
	}
	w.mu.Unlock()
	var hit []*group
	err := w.c.Store.View(ctx, func(ctx context.Context, tx jobstore.Tx) error {
		hit = nil
		for _, g := range some {
			found, err := tx.Due(ctx, jobstore.Due{Selector: g.sel}, 1)
			if err != nil {
				return err
			}
			if len(found) > 0 {
				hit = append(hit, g)
			}
		}
		return nil
	})
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil && !errors.Is(err, jobstore.ErrUnavailable) && !w.closed { // waiting callers get the error
		hit = some
	}
	for _, g := range hit {
		if g.line.Len() > 0 {
			w.makeReady(g)
		}
	}
	return err
}

// troubled logs the first failure of the store, and its recovery.
func (w *List) troubled(ctx context.Context, c *coming, err error) {
	switch {
	case ctx.Err() != nil:
	case err != nil && !c.trouble:
		w.c.Log.Warn("the store does not say which jobs are due; those who wait go on waiting", "error", err)
		c.trouble = true
	case err == nil && c.trouble:
		w.c.Log.Info("the store says again which jobs are due")
		c.trouble = false
	}
}

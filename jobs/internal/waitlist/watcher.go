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

// watcher is the state of one goroutine, which runs while callers wait. It receives the
// notifications of the store and asks the store when the next job becomes due. It also polls, since
// notifications may be lost.
//
// If several groups match a due job, it wakes the group whose first caller has waited longest. It
// wakes the other groups if a second job is left. List.mu protects all fields except Ctx and
// signal.
type watcher struct {
	running  bool
	waiting  int // callers that wait
	names    map[string]map[*group]bool
	patterns map[*group]bool
	notified map[string]bool // job names from notifications since the last dispatch
	all      bool            // a notification may concern any name
	newGroup bool            // a group began to wait that may have missed notifications
	signal   wake.Signal
	Ctx      context.Context // context of its store calls; end cancels it
	end      context.CancelFunc
}

const (
	linger      = 5 * time.Second      // how long the watcher runs on without callers
	gap         = 2 * time.Millisecond // the shortest time between two calls of ask
	maxNotified = 1024                 // names that are distinguished
	maxProbes   = 256                  // groups that one probe reads jobs for
)

// init makes the watcher ready, without starting its goroutine. Ctx, the context of its store
// calls, ends with ctx or when l.end is called.
func (l *watcher) init(ctx context.Context) {
	l.names, l.patterns, l.notified = map[string]map[*group]bool{}, map[*group]bool{}, map[string]bool{}
	l.signal = wake.New()
	l.Ctx, l.end = context.WithCancel(ctx)
}

// startWaiting adds one to the number of waiting callers of g and of the list, and to
// Config.Waiting. For the first caller of g it registers g with the watcher by its names or its
// pattern. It starts the goroutine of the watcher if that does not run. Call it with w.mu held.
func (w *List) startWaiting(g *group) {
	w.c.Waiting.Add(1)
	l := &w.Watcher
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
		go w.runWatcher()
	}
}

// stillWaiting tells the watcher that callers of g still wait after g was served. The watcher then
// asks the store soon, since g may have missed a notification. It does so only once while g has
// waiting callers. Call it with w.mu held.
func (w *List) stillWaiting(g *group) {
	if !g.known {
		g.known, w.Watcher.newGroup = true, true
		w.Watcher.signal.Notify()
	}
}

// stopWaiting subtracts one from the number of waiting callers of g and of the list, and from
// Config.Waiting. After the last waiting caller of g it removes g from the watcher. The goroutine
// of the watcher keeps running. Call it with w.mu held.
func (w *List) stopWaiting(g *group) {
	w.c.Waiting.Add(-1)
	l := &w.Watcher
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

// onNotify records the job names of a notification and wakes the watcher if a waiting group may
// match. Names that no group asks for are ignored, and so are texts for queues and deferrals
// (jobstore.NoName). nil names, or more than maxNotified, match all groups. The store calls it from
// any goroutine. It takes w.mu.
func (w *List) onNotify(names []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	l := &w.Watcher
	if names == nil {
		l.all = true
	}
	some := l.all
	for _, name := range names {
		if l.names[name] == nil && (len(l.patterns) == 0 || strings.HasPrefix(name, jobstore.NoName)) {
			// No caller asks for the name, or the notification concerns a queue, whose jobs Get does not
			// claim.
			continue
		}
		some = true
		if len(l.notified) >= maxNotified {
			l.all = true
			break
		}
		l.notified[name] = true
	}
	if some {
		l.signal.Notify()
	}
}

// class is the part of a Selector apart from names. If one group of a class gets no job of a name,
// no other group of the class gets one.
type class struct {
	priority task.Opt[int]
	mock     bool
}

// dispatch wakes waiting groups for job names that may be due. For each name it makes one matching
// group per class ready (makeReady): the group whose first caller has waited longest. It notes the
// name in that group, so that serve can wake the next group. A group with maxNotified names causes
// a probe of all groups instead. It reports whether any group matched. Call it with w.mu held.
func (l *watcher) dispatch(w *List, names map[string]bool) bool {
	some := false
	for name := range names {
		first := map[class]*group{}
		for g := range l.names[name] {
			g.keepOldest(first)
		}
		for g := range l.patterns {
			if g.match.Match(name) {
				g.keepOldest(first)
			}
		}
		for _, g := range first {
			some = true
			if g.names == nil {
				g.names = map[string]bool{}
			}
			if len(g.names) < maxNotified {
				g.names[name] = true
			} else {
				l.all = true
			}
			w.makeReady(g)
		}
	}
	return some
}

// keepOldest stores g in first, under its class, if first has no group of that class. It also
// replaces a group whose first caller has waited less long than the first caller of g. g must have
// callers. Call it with w.mu held.
func (g *group) keepOldest(first map[class]*group) {
	c := class{g.sel.Priority, g.sel.Mock}
	if f := first[c]; f == nil || g.line.Front().Value.(*caller).number < f.line.Front().Value.(*caller).number {
		first[c] = g
	}
}

// runWatcher receives notifications of the store, asks the store and polls it, and wakes the groups
// for which jobs are due. It ends when no caller has waited for the time linger, or when Ctx ends;
// it then ends its watch of the store. It runs in a goroutine. It takes w.mu and releases it during
// calls of the store.
func (w *List) runWatcher() {
	l := &w.Watcher
	unwatch := w.c.Store.Watch(w.onNotify)
	defer unwatch()
	timer := time.NewTimer(0) // the first round starts at once
	defer timer.Stop()
	var c timetable
	idleSince := time.Time{}
	for {
		select {
		case <-l.Ctx.Done():
			w.mu.Lock()
			l.running = false
			w.ended()
			w.mu.Unlock()
			return
		case <-l.signal:
		case <-timer.C:
		}
		w.mu.Lock()
		notified, all, newGroup := l.notified, l.all, l.newGroup
		l.notified, l.all, l.newGroup = map[string]bool{}, false, false
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
		if l.dispatch(w, notified) || newGroup {
			c.soon() // the job may not be due yet
		}
		w.mu.Unlock()
		w.askAndProbe(l.Ctx, &c, all)
		timer.Reset(time.Until(c.nextAsk))
	}
}

// timetable contains the times of the watcher's next actions. They are times of this process,
// except since.
type timetable struct {
	since   time.Time // store's time up to which all due jobs were seen
	asked   time.Time
	nextAsk time.Time // when to call ask again
	poll    time.Time // when to call probe again
	trouble bool      // the last call of the store failed
}

// soon moves the next call of ask to the end of the minimum gap after the last call, if it is
// planned later. An earlier plan stays.
func (c *timetable) soon() {
	if at := c.asked.Add(gap); at.Before(c.nextAsk) {
		c.nextAsk = at
	}
}

// askAndProbe calls ask and probe if their times in c have come, and plans their next times. all,
// or incomplete names from ask, forces a probe. It logs the first failure of the store and its
// recovery (logOutage). Call it without w.mu.
func (w *List) askAndProbe(ctx context.Context, c *timetable, all bool) {
	now := time.Now()
	if !now.Before(c.poll) {
		all = true
	}
	if !now.Before(c.nextAsk) {
		more, err := w.ask(ctx, c)
		w.logOutage(ctx, c, err)
		all = all || more
	}
	if all {
		c.poll = now.Add(w.c.Poll)
		w.logOutage(ctx, c, w.probe(ctx))
	}
	if c.poll.Before(c.nextAsk) {
		c.nextAsk = c.poll
	}
}

// ask reads the names of jobs that became due since the last call, and wakes matching groups
// (dispatch). It plans the next call for the time at which the next job becomes due, but at most
// Config.Poll later. more reports that the names may be incomplete, as in the first call. After an
// error it wakes no group and returns the error; jobs that became due meanwhile are read by the
// next call. It takes w.mu.
func (w *List) ask(ctx context.Context, c *timetable) (more bool, err error) {
	c.asked = time.Now()
	c.nextAsk = c.asked.Add(w.c.Poll)
	due, err := w.c.Store.Coming(ctx, c.since, maxNotified)
	if err != nil {
		return false, err
	}
	more = c.since.IsZero() || due.More
	c.since = due.Now
	if !due.Next.IsZero() {
		wait := max(due.Next.Sub(due.Now)+time.Microsecond, gap)
		if at := time.Now().Add(wait); wait < w.c.Poll && at.Before(c.nextAsk) {
			c.nextAsk = at
		}
	}
	if len(due.Names) > 0 {
		names := make(map[string]bool, len(due.Names))
		for _, name := range due.Names {
			names[name] = true
		}
		w.mu.Lock()
		w.Watcher.dispatch(w, names)
		w.mu.Unlock()
	}
	return more, nil
}

// probe reads whether a job is due for each of at most maxProbes waiting groups, without locks. It
// makes the groups with a due job ready (makeReady). If the store refuses the read, it makes all of
// these groups ready, and their callers get the error from Take. If the store is unavailable, only
// groups that were read before the error become ready. It returns the error of the read. It takes
// w.mu.
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
	// waiting callers get the error from Take
	if err != nil && !errors.Is(err, jobstore.ErrUnavailable) && !w.closed {
		hit = some
	}
	for _, g := range hit {
		if g.line.Len() > 0 {
			w.makeReady(g)
		}
	}
	return err
}

// logOutage logs the first failure of the store as a warning, and its recovery as information.
// Further failures are not logged. c.trouble keeps the last state. It ignores all results after the
// end of ctx.
func (w *List) logOutage(ctx context.Context, c *timetable, err error) {
	switch {
	case ctx.Err() != nil:
	case err != nil && !c.trouble:
		w.c.Log.Warn("the store does not report due jobs; waiting calls of Get continue to wait", "error", err)
		c.trouble = true
	case err == nil && c.trouble:
		w.c.Log.Info("the store reports due jobs again")
		c.trouble = false
	}
}

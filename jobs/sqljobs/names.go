package sqljobs

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/swarmiji/swarmiji/internal/glob"
	"github.com/swarmiji/swarmiji/internal/sqlconn"
)

const (
	// namesAge is after what time a process reads all names anew: others may have removed some, and a server that a
	// failover has set back in time numbers its transactions from an earlier one.
	namesAge = time.Minute
	// maxPatterns is for how many patterns a process remembers which names match, and maxMatched
	// how many names they are altogether. When there are more, some pattern is forgotten.
	maxPatterns = 10_000
	maxMatched  = 4 << 20
)

// nameCache is what a process knows of the names of jobs. A call that needs them reads what has come since the mark, so that it knows all
// that were committed before.
//
// The mark of SQLite is the number of the newest name: there is one writer, so that they become visible in their order. That of
// PostgreSQL is the oldest transaction that was under way: all before it had ended.
type nameCache struct {
	mu       sync.Mutex
	mark     int64
	list     []string // grows only, until it is read anew
	sorted   int      // so many in front are in their order
	known    map[string]struct{}
	read     time.Time
	readings int // how often all were read
	patterns map[string]*matched
	total    int // of the names that patterns match
}

// matched are the names that a pattern matches, of the first upto of the list.
type matched struct {
	pattern glob.Pattern
	names   []string
	upto    int
	short   walk
	long    walk

	forgotten bool // it is of the calls that hold it alone
}

// walk is what is known of walks over what is due, from its beginning.
type walk struct {
	vain  bool // the last one has not found enough
	asked int
}

// learnt is what a call has read of the names, to be remembered when its transaction is committed: one that is not may have seen
// numbers that are given again.
type learnt struct {
	from, mark int64
	all        bool
	readings   int
	names      []string
}

// since is where to read from.
func (n *nameCache) since() *learnt {
	n.mu.Lock()
	defer n.mu.Unlock()
	l := &learnt{from: n.mark, readings: n.readings}
	if time.Since(n.read) > namesAge {
		l.from = 0
	}
	l.mark, l.all = l.from, l.from == 0
	return l
}

// learn remembers.
func (n *nameCache) learn(l *learnt) {
	if l == nil {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case l.readings != n.readings:
		return // somebody else has read all of them since
	case l.all:
		n.readings++
		n.list, n.known, n.read = nil, make(map[string]struct{}, len(l.names)), time.Now()
		for _, m := range n.patterns {
			m.names, m.upto = nil, 0
		}
		n.total = 0
	case l.from != n.mark:
		return // somebody else has read the same since
	}
	n.mark = l.mark
	for _, name := range l.names {
		if _, ok := n.known[name]; !ok {
			n.known[name] = struct{}{}
			n.list = append(n.list, name)
		}
	}
	if l.all {
		slices.Sort(n.list)
		n.sorted = len(n.list)
	}
}

// of returns what is known of a pattern, which is compiled once.
func (n *nameCache) of(pattern string) *matched {
	n.mu.Lock()
	defer n.mu.Unlock()
	m := n.patterns[pattern]
	if m == nil {
		if n.patterns == nil {
			n.patterns = make(map[string]*matched)
		}
		n.forget()
		m = &matched{pattern: glob.Compile(pattern)}
		n.patterns[pattern] = m
	}
	return m
}

// forget forgets patterns, any of them, until there is room for one more.
func (n *nameCache) forget() {
	for pattern, m := range n.patterns {
		if len(n.patterns) < maxPatterns && n.total <= maxMatched {
			return
		}
		delete(n.patterns, pattern)
		n.total -= len(m.names)
		m.forgotten = true
	}
}

// worth reports whether a walk promises something: the last one has found, or it is time to try again.
func (n *nameCache) worth(w *walk) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	w.asked++
	return !w.vain || w.asked%16 == 0
}

func (n *nameCache) walked(w *walk, found bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	w.vain = !found
}

// match returns the names that a pattern matches, among those that were known and those that l brings, and how many names there are; -1:
// what l is a sequel to is gone. The answer is not to be changed.
func (n *nameCache) match(m *matched, l *learnt) (names []string, of int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if l.all {
		for _, name := range l.names {
			if m.pattern.Match(name) {
				names = append(names, name)
			}
		}
		return names, len(l.names)
	}
	if l.readings != n.readings {
		return nil, -1
	}
	was := len(m.names)
	if m.upto == 0 { // of names in their order few begin as the pattern does
		prefix := m.pattern.Prefix()
		for at, _ := slices.BinarySearch(n.list[:n.sorted], prefix); at < n.sorted && strings.HasPrefix(n.list[at], prefix); at++ {
			if m.pattern.Match(n.list[at]) {
				m.names = append(m.names, n.list[at])
			}
		}
		m.upto = n.sorted
	}
	for ; m.upto < len(n.list); m.upto++ {
		if m.pattern.Match(n.list[m.upto]) {
			m.names = append(m.names, n.list[m.upto])
		}
	}
	if !m.forgotten {
		n.total += len(m.names) - was
	}
	names = m.names[:len(m.names):len(m.names)]
	for _, name := range l.names {
		if _, ok := n.known[name]; !ok && m.pattern.Match(name) {
			names = append(names, name)
		}
	}
	return names, len(n.list) + len(l.names)
}

// readNames reads the names that have come since this process last looked.
func (t *tx) readNames(ctx context.Context) (*learnt, error) {
	l := t.s.names.since()
	rows, err := t.c.Query(ctx, t.s.text.names, l.from)
	if err != nil {
		return nil, err
	}
	for rows.Next() {
		var mark int64
		var name string
		if err := rows.Scan(&mark, &name); err != nil {
			return nil, err
		}
		l.mark = max(l.mark, mark)
		if name != "" {
			l.names = append(l.names, name)
		}
	}
	if err := errors.Join(rows.Err(), rows.Close()); err != nil {
		return nil, err
	}
	t.learnt = l
	return l, nil
}

// sweepPage is how many names one sweep looks at, and sweepEach after how many new ones there is one: names are removed at least as
// fast as they come.
const (
	sweepPage = 128
	sweepEach = 64
)

// sweeper removes names whose jobs are gone. The caller whose job had a new name does that, now and then, after his own affairs.
type sweeper struct {
	mu    sync.Mutex
	fresh int
	busy  bool
	after string
}

// count counts new names and sweeps when there were enough.
func (w *sweeper) count(ctx context.Context, s *Store, fresh int) {
	if fresh == 0 {
		return
	}
	w.mu.Lock()
	w.fresh += fresh
	if w.busy || w.fresh < sweepEach {
		w.mu.Unlock()
		return
	}
	pages := min(w.fresh/sweepEach, 16)
	w.fresh, w.busy = 0, true
	after := w.after
	w.mu.Unlock()
	for range pages {
		next, err := s.sweepOnce(ctx, after)
		if err != nil {
			break // the next one begins here
		}
		after = next
	}
	w.mu.Lock()
	w.busy, w.after = false, after
	w.mu.Unlock()
}

// sweepOnce looks at the names after one, and answers where the next sweep begins.
func (s *Store) sweepOnce(ctx context.Context, after string) (next string, err error) {
	err = s.conn.Update(ctx, func(ctx context.Context, c *sqlconn.Tx) error {
		idle, last, err := idleNames(ctx, c, s.text.page, after)
		if next = last; err != nil || len(idle) == 0 {
			return err
		}
		if s.lite {
			for _, name := range idle {
				if _, err := c.Exec(ctx, s.text.forget, name); err != nil {
					return err
				}
			}
			return nil
		}
		if idle, err = lockNames(ctx, c, idle); err != nil || len(idle) == 0 {
			return err
		}
		_, err = c.Exec(ctx, s.text.forget, idle) // a statement of its own: it sees what those have done who held the locks before
		return err
	})
	return next, err
}

// idleNames returns the names of a page that have no jobs, and the page's last one; "": it was the last page.
func idleNames(ctx context.Context, c *sqlconn.Tx, page, after string) (idle []string, last string, err error) {
	rows, err := c.Query(ctx, page, after)
	if err != nil {
		return nil, "", err
	}
	n := 0
	for rows.Next() {
		var used int64
		if err := rows.Scan(&last, &used); err != nil {
			return nil, "", err
		}
		if n++; used == 0 {
			idle = append(idle, last)
		}
	}
	if n < sweepPage {
		last = ""
	}
	return idle, last, errors.Join(rows.Err(), rows.Close())
}

// lockNames returns those of the names that no transaction is about to use.
func lockNames(ctx context.Context, c *sqlconn.Tx, names []string) ([]string, error) {
	byKey := make(map[int64]string, len(names))
	keys := make([]int64, 0, len(names))
	for _, name := range names {
		k := lockKey(nameLock, name)
		if _, twice := byKey[k]; !twice {
			byKey[k] = name
			keys = append(keys, k)
		}
	}
	rows, err := c.Query(ctx, tryNamesText, allNames, keys)
	if err != nil {
		return nil, err
	}
	locked := names[:0]
	for rows.Next() {
		var k int64
		if err := rows.Scan(&k); err != nil {
			return nil, err
		}
		locked = append(locked, byKey[k])
	}
	return locked, errors.Join(rows.Err(), rows.Close())
}

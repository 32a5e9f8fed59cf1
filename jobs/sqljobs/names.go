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
	// namesAge is the age from which on a process reads all names again. Other processes may have
	// removed names. After a failover, a server may number its transactions from an earlier number.
	namesAge = time.Minute
	// maxPatterns limits the patterns for which a process caches the matching names. maxMatched limits
	// the total number of these names. Above a limit, arbitrary patterns are removed.
	maxPatterns = 10_000
	maxMatched  = 4 << 20
)

// nameCache caches the names of jobs in this process. A call that needs the names reads those added
// since the mark. It then knows all names committed before. Safe for concurrent use.
type nameCache struct {
	mu       sync.Mutex
	mark     mark
	list     []string // only grows, until all names are read again
	sorted   int      // this many entries at the start are sorted
	known    map[string]struct{}
	read     time.Time
	readings int // how many times all names were read
	patterns map[string]*matched
	total    int // of all names in patterns
}

// mark is the point up to which names were read. The zero value means that no names were read.
//
// SQLite has one writer, so names become visible in the order of their numbers. On PostgreSQL, a
// snapshot lists the transactions that had ended. It does not include the transaction that took the
// snapshot.
type mark struct {
	number   int64  // SQLite: newest name. PostgreSQL: transaction that read, or 0.
	snapshot string // PostgreSQL only
}

// matched holds the names that match a pattern, among the first upto names of the list.
type matched struct {
	pattern glob.Pattern
	names   []string
	upto    int
	short   walk
	long    walk

	forgotten bool // not in the cache any more; only running calls use it
}

// walk holds the success of walks over the first due rows.
type walk struct {
	vain  bool // the last walk did not find enough
	asked int
}

// learnt holds the names that a call has read. They enter the cache when the transaction commits. A
// transaction that fails may have seen numbers that are used again.
type learnt struct {
	from, mark mark
	all        bool
	readings   int
	names      []string
}

// since begins a read of names: it returns an empty learnt that says from which mark to read. That
// is the zero mark, which means all names, if the last full reading is older than namesAge. It
// takes n.mu.
func (n *nameCache) since() *learnt {
	n.mu.Lock()
	defer n.mu.Unlock()
	l := &learnt{from: n.mark, readings: n.readings}
	if time.Since(n.read) > namesAge {
		l.from = mark{}
	}
	l.mark, l.all = l.from, l.from == mark{}
	return l
}

// learn adds the names of l to the cache. After a full read it replaces the cache and forgets the
// names that match each pattern. It ignores l if another call has read the same names in the
// meantime. A nil l does nothing. It takes n.mu.
func (n *nameCache) learn(l *learnt) {
	if l == nil {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case l.readings != n.readings:
		return // another call has read all names since
	case l.all:
		n.readings++
		n.list, n.known, n.read = nil, make(map[string]struct{}, len(l.names)), time.Now()
		for _, m := range n.patterns {
			m.names, m.upto = nil, 0
		}
		n.total = 0
	case l.from != n.mark:
		return // another call has read the same names since
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

// of returns the cache entry of a pattern. It compiles a new pattern and adds it; other patterns
// may be removed to make room. Removed entries stay usable for running calls. It takes n.mu.
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

// forget removes arbitrary patterns until there is space for one more: fewer than maxPatterns
// patterns and at most maxMatched names. Running calls may still use the removed entries. Call it
// with n.mu held.
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

// worth reports whether to try a walk (a read of the first due rows) of w. Returns true if the last
// walk found enough, and at every 16th call. It counts the calls. It takes n.mu.
func (n *nameCache) worth(w *walk) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	w.asked++
	return !w.vain || w.asked%16 == 0
}

// walked stores in w whether a walk found enough rows. It takes n.mu.
func (n *nameCache) walked(w *walk, found bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	w.vain = !found
}

// match returns the names that match m, among the cached names and the names of l, and the number
// of all names. It adds the matching cached names to m. The caller must not change the result.
//
// If l contains all names, only they are matched and the cache is not used. The number is -1 if the
// cached names were read again since l began: the caller reads again. It takes n.mu.
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
	if m.upto == 0 { // in sorted order, few names begin with the pattern's prefix
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

// readNames reads the names of jobs that were added since the cache's mark, or all names, and
// returns them. It stores the result in t.learnt, in place of an earlier one, from which it enters
// the cache after the commit. An error does not fail the transaction.
func (t *tx) readNames(ctx context.Context) (*learnt, error) {
	l := t.s.names.since()
	args := []any{l.from.number, l.from.snapshot}
	if t.s.lite {
		args = args[:1]
	}
	rows, err := t.c.Query(ctx, t.s.text.names, args...)
	if err != nil {
		return nil, err
	}
	for rows.Next() {
		var name string
		// the last row has the newest mark
		if err := rows.Scan(&l.mark.number, &l.mark.snapshot, &name); err != nil {
			return nil, err
		}
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

// sweepPage is the number of names that one sweep checks. One sweep runs after each sweepEach new
// names. So names are removed at least as fast as they are added.
const (
	sweepPage = 128
	sweepEach = 64
)

// sweeper removes names without jobs. A caller that added a new name sometimes does this after its
// transaction.
type sweeper struct {
	mu    sync.Mutex
	fresh int    // new names since the last removal
	busy  bool   // a goroutine removes names
	after string // name after which the next sweep begins
}

// count adds fresh to the number of new names. At sweepEach names it removes unused names, page by
// page, at most 16 pages, unless another goroutine does. It blocks meanwhile. An error ends the
// removal and is dropped. It takes w.mu, but not during the removal.
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
			break // the next sweep begins at this name
		}
		after = next
	}
	w.mu.Lock()
	w.busy, w.after = false, after
	w.mu.Unlock()
}

// sweepOnce removes the unused names among the next sweepPage names after the name after, in a
// transaction of its own. It returns the last name of that page, after which the next sweep
// begins; "" means from the start. On PostgreSQL it skips names that another transaction is about
// to use. Returns errors of the database.
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
		// a separate statement, to see the changes of transactions that held the locks before
		_, err = c.Exec(ctx, s.text.forget, idle)
		return err
	})
	return next, err
}

// idleNames returns the names without jobs among the next sweepPage names after the name after,
// and the last name of that page. The last name is "" at the last page. page is the statement.
// Returns errors of the database.
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

// lockNames locks those of the names that no other transaction is about to use, until the end of
// the transaction, and returns them. It does not wait. It reuses the memory of names. PostgreSQL
// alone uses it. Returns errors of the database.
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

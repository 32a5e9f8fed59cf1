package memjobs

import (
	"cmp"
	"math"
	"slices"

	"github.com/swarmiji/swarmiji/internal/glob"
	"github.com/swarmiji/swarmiji/jobs/jobstore"
)

// nameset contains the jobs with one name.
type nameset struct {
	name string
	jobs order    // by id
	due  [2]order // those with a Due, by priority and time: plain jobs and mock jobs
	used int      // number of records that refer to it
}

// names contains all names of jobs. It caches for each recently used pattern the names that match.
// A pattern is compared with each name once, since names and patterns are far fewer than jobs and
// claims.
type names struct {
	byName   map[string]*nameset
	list     []*nameset // in the order of creation; unused names stay for a while
	idle     int        // number of unused names
	patterns map[string]*match
	total    int // sum of the matching names of all cached patterns
}

// match is the cached result of a pattern.
type match struct {
	pattern glob.Pattern
	name    string // the only matching name, if exact is true
	exact   bool
	kept    bool // the cache contains it
	upTo    int  // number of names in the list that were compared
	found   []*nameset
	set     map[*nameset]struct{}
}

const (
	maxPatterns = 10_000  // number of cached patterns
	maxMatched  = 1 << 20 // number of cached matching names of all patterns
	maxPattern  = 1024    // bytes of a cached pattern
)

// newNames returns an empty set of names.
func newNames() names {
	return names{byName: map[string]*nameset{}, patterns: map[string]*match{}}
}

// use returns the set of a name, which contains the jobs with this name, and adds one to its number
// of records. It creates a missing set, without jobs; the caller adds the record to the orders of
// the set. Call it with the table locked.
func (n *names) use(name string) *nameset {
	s := n.byName[name]
	switch {
	case s == nil:
		s = &nameset{name: name}
		n.byName[name] = s
		n.list = append(n.list, s)
	case s.used == 0:
		n.idle--
	}
	s.used++
	return s
}

// release subtracts one from the number of records of s. A set without records stays at first,
// since the name may soon be used again. When at least 64 sets and half of all are unused, it
// deletes them and all cached patterns. Call it with the table locked.
func (n *names) release(s *nameset) {
	if s.used--; s.used > 0 {
		return
	}
	n.idle++
	if n.idle < 64 || n.idle < len(n.list)/2 {
		return // the name may soon be used again
	}
	n.list = slices.DeleteFunc(n.list, func(s *nameset) bool {
		if s.used == 0 {
			delete(n.byName, s.name)
		}
		return s.used == 0
	})
	n.idle, n.total = 0, 0
	clear(n.patterns)
}

// order returns the order by id of the jobs with a name. Returns nil if the name has no set. Call
// it with the table locked.
func (n *names) order(name string) *order {
	if s := n.byName[name]; s != nil {
		return &s.jobs
	}
	return nil
}

// forget deletes arbitrary cached patterns until one more fits within maxPatterns and maxMatched.
// Call it with the table locked.
func (n *names) forget() {
	for pattern, m := range n.patterns {
		if len(n.patterns) < maxPatterns && n.total <= maxMatched {
			return
		}
		delete(n.patterns, pattern)
		n.total -= len(m.found)
	}
}

// matched returns the sets of the names that match a pattern, and caches them. It compares only
// names that are new since the last call. A pattern without wildcards gives only its name, with
// exact true and found empty. A pattern above maxPattern bytes is not cached. Call it with the
// table locked.
func (n *names) matched(pattern string) *match {
	m := n.patterns[pattern]
	if m == nil {
		n.forget()
		m = &match{pattern: glob.Compile(pattern), set: map[*nameset]struct{}{}}
		m.name, m.exact = m.pattern.Exact()
		if m.kept = len(pattern) <= maxPattern; m.kept {
			n.patterns[pattern] = m
		}
	}
	if m.exact {
		return m
	}
	was := len(m.found)
	for _, s := range n.list[m.upTo:] {
		if m.pattern.Match(s.name) {
			m.found = append(m.found, s)
			m.set[s] = struct{}{}
		}
	}
	if m.kept {
		n.total += len(m.found) - was
	}
	m.upTo = len(n.list)
	return m
}

// findDue returns up to limit due records without a queue that s selects, in the order of
// priority, time and id. by is the latest Due, in microseconds. It changes no job. Call it with
// the table locked.
func (t *table) findDue(s *jobstore.Selector, by int64, limit int) []*record {
	if s.Pattern == "" {
		return firstOf(t.named(s.Names...), s, by, limit)
	}
	m := t.names.matched(s.Pattern)
	if m.exact {
		return firstOf(t.named(m.name), s, by, limit)
	}
	if len(m.found) > 16 {
		// With many matching names, walking through all due jobs is faster, unless nearly all of these
		// have other names.
		if found, whole := t.walk(m, s, by, limit); whole {
			return found
		}
	}
	return firstOf(m.found, s, by, limit)
}

// named returns the sets of these names in sorted order, each once. Unknown names are left out.
// Call it with the table locked.
func (t *table) named(list ...string) []*nameset {
	if len(list) > 1 {
		list = slices.Clone(list)
		slices.Sort(list)
		list = slices.Compact(list)
	}
	sets := make([]*nameset, 0, len(list))
	for _, name := range list {
		if s := t.names.byName[name]; s != nil {
			sets = append(sets, s)
		}
	}
	return sets
}

// walk searches all due jobs in their order for names that match the pattern of m. It returns up
// to limit records that s selects, in the order of priority, time and id, with whole true. It
// returns nil and false if it has read 64 + 4*limit jobs, of one kind, without success: too many
// have other names. Call it with the table locked.
func (t *table) walk(m *match, s *jobstore.Selector, by int64, limit int) (found []*record, whole bool) {
	only, kinds := scope(s)
	want := func(r *record) bool { _, ok := m.set[r.name]; return ok }
	for k := range kinds {
		if found, whole = t.broad[k].dueBy(found, by, only, limit, 64+4*limit, want); !whole {
			return nil, false
		}
	}
	return first(found, limit), true
}

// firstOf returns the first limit due records of several names that s selects, in the order of
// priority, time and id. by is the latest Due, in microseconds.
func firstOf(sets []*nameset, s *jobstore.Selector, by int64, limit int) []*record {
	only, kinds := scope(s)
	var found []*record
	for _, n := range sets {
		for k := range kinds {
			found, _ = n.due[k].dueBy(found, by, only, limit, math.MaxInt, nil)
		}
		if len(found) > 4*limit+1000 {
			found = first(found, limit)
		}
	}
	return first(found, limit)
}

// scope returns the wanted priority, or nil for any, and the number of kinds of jobs to search: 1
// for plain jobs, 2 with mock jobs.
func scope(s *jobstore.Selector) (only *int, kinds int) {
	if p, set := s.Priority.Get(); set {
		only = &p
	}
	if s.Mock {
		return only, 2
	}
	return only, 1
}

// first sorts records in place by priority, time and id, and returns at most limit of them.
func first(found []*record, limit int) []*record {
	slices.SortFunc(found, func(a, b *record) int {
		return cmp.Or(cmp.Compare(a.job.Priority, b.job.Priority), a.job.Due.Compare(b.job.Due), cmp.Compare(a.job.ID, b.job.ID))
	})
	return found[:min(len(found), limit)]
}

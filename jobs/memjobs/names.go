package memjobs

import (
	"cmp"
	"math"
	"slices"

	"github.com/swarmiji/swarmiji/internal/glob"
	"github.com/swarmiji/swarmiji/jobs/jobstore"
)

// nameset is the jobs of one name.
type nameset struct {
	name string
	jobs order    // by id
	due  [2]order // those with a Due, by priority and time: plain ones, and mocks
	used int      // how many records refer to it
}

// names is a list of the names that there are, and of the patterns that were asked for lately with the names that each matches. A
// pattern is held against each name once: there are far fewer names than jobs, and far fewer patterns than claims.
type names struct {
	byName   map[string]*nameset
	list     []*nameset // in the order in which they came; those without jobs stay for a while
	idle     int        // how many of them have no jobs
	patterns map[string]*match
	total    int // of the names that patterns match
}

// match is what is known of a pattern.
type match struct {
	pattern glob.Pattern
	name    string // if it matches this alone
	exact   bool
	kept    bool
	upTo    int // how many of the list it was held against
	found   []*nameset
	set     map[*nameset]struct{}
}

const (
	maxPatterns = 10_000  // so many patterns are remembered, and the names that they match
	maxMatched  = 1 << 20 // altogether; when there are more, some pattern is forgotten
	maxPattern  = 1024    // bytes of one that is remembered
)

func newNames() names {
	return names{byName: map[string]*nameset{}, patterns: map[string]*match{}}
}

// use returns the set of a name for one more record.
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

// release gives back what use returned.
func (n *names) release(s *nameset) {
	if s.used--; s.used > 0 {
		return
	}
	n.idle++
	if n.idle < 64 || n.idle < len(n.list)/2 {
		return // it may well be used again at once
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

// order returns the jobs of a name by id, or nil.
func (n *names) order(name string) *order {
	if s := n.byName[name]; s != nil {
		return &s.jobs
	}
	return nil
}

// forget forgets patterns, any of them, until there is room for one more.
func (n *names) forget() {
	for pattern, m := range n.patterns {
		if len(n.patterns) < maxPatterns && n.total <= maxMatched {
			return
		}
		delete(n.patterns, pattern)
		n.total -= len(m.found)
	}
}

// matched returns what is known of a pattern. One that is a name is not held against others.
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

// findDue returns the first jobs that d asks for, in the order of priority, time and id, at most limit of them. by is the latest time.
func (t *table) findDue(s *jobstore.Selector, by int64, limit int) []*record {
	if s.Pattern == "" {
		return firstOf(t.named(s.Names...), s, by, limit)
	}
	m := t.names.matched(s.Pattern)
	if m.exact {
		return firstOf(t.named(m.name), s, by, limit)
	}
	if len(m.found) > 16 {
		// Of many names it is quicker to look at what is due first of all, unless that is nearly all of other names.
		if found, whole := t.walk(m, s, by, limit); whole {
			return found
		}
	}
	return firstOf(m.found, s, by, limit)
}

// named returns the sets of these names, each once.
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

// walk looks for the names of a pattern in the order of all jobs, for so long as is worth it.
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

// firstOf gathers the first jobs of each name, and returns the first of these.
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

// scope returns the one priority that counts, or nil, and how many kinds of jobs do: plain ones, or mocks too.
func scope(s *jobstore.Selector) (only *int, kinds int) {
	if p, set := s.Priority.Get(); set {
		only = &p
	}
	if s.Mock {
		return only, 2
	}
	return only, 1
}

// first sorts records by priority, time and id, and returns the first of them.
func first(found []*record, limit int) []*record {
	slices.SortFunc(found, func(a, b *record) int {
		return cmp.Or(cmp.Compare(a.job.Priority, b.job.Priority), a.job.Due.Compare(b.job.Due), cmp.Compare(a.job.ID, b.job.ID))
	})
	return found[:min(len(found), limit)]
}

package runs

import (
	"maps"
	"slices"
	"sync"
)

// Registry holds the runs whose handler has not returned. It has several shards, each with its own
// lock, since every run changes it twice; the worker number selects the shard. The zero value is
// ready for use. Safe for concurrent use.
type Registry[R comparable] struct {
	shards [8]struct {
		mu   sync.Mutex
		runs map[R]struct{}
		done int64    // handlers that have returned
		_    [40]byte // puts each shard on its own cache lines
	}
}

// Add adds a run to the shard of the worker. Remove and End need the same worker. It takes the lock
// of the shard.
func (g *Registry[R]) Add(r R, worker int) {
	s := &g.shards[worker%len(g.shards)]
	s.mu.Lock()
	if s.runs == nil {
		s.runs = make(map[R]struct{})
	}
	s.runs[r] = struct{}{}
	s.mu.Unlock()
}

// Remove removes a run that did not start, without counting it. It does nothing if the run is not
// held. It takes the lock of the shard.
func (g *Registry[R]) Remove(r R, worker int) { g.drop(r, worker, 0) }

// End removes a run whose handler has returned, and counts it in Ended. It takes the lock of the
// shard.
func (g *Registry[R]) End(r R, worker int) { g.drop(r, worker, 1) }

// drop removes a run from the shard of the worker and adds done to the count of ended handlers. It
// takes the lock of the shard.
func (g *Registry[R]) drop(r R, worker int, done int64) {
	s := &g.shards[worker%len(g.shards)]
	s.mu.Lock()
	delete(s.runs, r)
	s.done += done
	s.mu.Unlock()
}

// Ended returns the number of handlers that have returned, by the calls of End. It takes the locks
// of the shards one by one.
func (g *Registry[R]) Ended() (n int64) {
	for i := range g.shards {
		s := &g.shards[i]
		s.mu.Lock()
		n += s.done
		s.mu.Unlock()
	}
	return n
}

// All returns the runs in no particular order. It takes the locks of the shards one by one.
func (g *Registry[R]) All() []R {
	var rs []R
	for i := range g.shards {
		s := &g.shards[i]
		s.mu.Lock()
		for r := range s.runs {
			rs = append(rs, r)
		}
		s.mu.Unlock()
	}
	return rs
}

// Len returns the number of runs. It takes the locks of the shards one by one.
func (g *Registry[R]) Len() (n int) {
	for i := range g.shards {
		s := &g.shards[i]
		s.mu.Lock()
		n += len(s.runs)
		s.mu.Unlock()
	}
	return n
}

// Set is a set of runs. The zero value is ready for use. Safe for concurrent use.
type Set[R comparable] struct {
	mu   sync.Mutex
	runs map[R]struct{}
}

// Add adds a run; a second Add of the same run has no effect. It takes g.mu.
func (g *Set[R]) Add(r R) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.runs == nil {
		g.runs = make(map[R]struct{})
	}
	g.runs[r] = struct{}{}
}

// Remove removes a run. It does nothing if the run is not in the set. It takes g.mu.
func (g *Set[R]) Remove(r R) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.runs, r)
}

// All returns the runs in no particular order. It takes g.mu.
func (g *Set[R]) All() []R {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Collect(maps.Keys(g.runs))
}

// Len returns the number of runs. It takes g.mu.
func (g *Set[R]) Len() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.runs)
}

package consumer

import (
	"maps"
	"slices"
	"sync"
)

// registry holds the runs whose handler has not returned. It is sharded, because every run passes it twice.
type registry struct {
	shards [8]struct {
		mu   sync.Mutex
		runs map[*run]struct{}
		done int64    // handlers that have returned
		_    [40]byte // keep the shards on cache lines of their own
	}
}

func (g *registry) add(r *run) {
	s := &g.shards[r.worker%len(g.shards)]
	s.mu.Lock()
	if s.runs == nil {
		s.runs = make(map[*run]struct{})
	}
	s.runs[r] = struct{}{}
	s.mu.Unlock()
}

// remove takes out a run that was not started after all.
func (g *registry) remove(r *run) { g.drop(r, 0) }

// end takes out a run whose handler has returned, and counts it.
func (g *registry) end(r *run) { g.drop(r, 1) }

func (g *registry) drop(r *run, done int64) {
	s := &g.shards[r.worker%len(g.shards)]
	s.mu.Lock()
	delete(s.runs, r)
	s.done += done
	s.mu.Unlock()
}

// ended returns how many handlers have returned.
func (g *registry) ended() (n int64) {
	for i := range g.shards {
		s := &g.shards[i]
		s.mu.Lock()
		n += s.done
		s.mu.Unlock()
	}
	return n
}

func (g *registry) all() []*run {
	var rs []*run
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

func (g *registry) len() int { return len(g.all()) }

// reserved holds the runs that a worker has taken and that have to wait before they start. Few do.
// What a subscription holds for the workers is reserved too, see queue.buffered.
type reserved struct {
	mu   sync.Mutex
	runs map[*run]struct{}
}

func (g *reserved) add(r *run) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.runs == nil {
		g.runs = make(map[*run]struct{})
	}
	g.runs[r] = struct{}{}
}

func (g *reserved) remove(r *run) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.runs, r)
}

func (g *reserved) all() []*run {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Collect(maps.Keys(g.runs))
}

func (g *reserved) len() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.runs)
}

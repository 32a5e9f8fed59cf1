package runs

import (
	"maps"
	"slices"
	"sync"
)

// Named holds values by name. The zero value is empty. Safe for concurrent use.
type Named[V any] struct {
	mu     sync.RWMutex
	values map[string]V
}

// Get returns the value of a name, or the zero V for an unknown name.
func (n *Named[V]) Get(name string) V {
	n.mu.RLock()
	defer n.mu.RUnlock()
	return n.values[name]
}

// Set stores the value of a name.
func (n *Named[V]) Set(name string, v V) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.values == nil {
		n.values = make(map[string]V)
	}
	n.values[name] = v
}

// Remove removes the value of a name.
func (n *Named[V]) Remove(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.values, name)
}

// Names returns all names, sorted.
func (n *Named[V]) Names() []string {
	n.mu.RLock()
	defer n.mu.RUnlock()
	return slices.Sorted(maps.Keys(n.values))
}

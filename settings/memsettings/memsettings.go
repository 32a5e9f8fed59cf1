// Package memsettings stores settings in the memory of this process, for tests and for programs
// with one process. They are lost when it ends.
package memsettings

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/swarmiji/swarmiji/internal/wake"
	"github.com/swarmiji/swarmiji/settings"
)

// Server holds the values. The zero value is ready for use. Safe for concurrent use.
type Server struct {
	mu     sync.Mutex
	values map[string]settings.Value
	last   uint64 // the newest revision
	stores map[*Store]struct{}
}

// Connect returns a new store of the values of s, as another process would have it. It takes s.mu.
func (s *Server) Connect() *Store {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stores == nil {
		s.stores = make(map[*Store]struct{})
	}
	c := &Store{server: s, watches: make(map[*watch]struct{})}
	s.stores[c] = struct{}{}
	return c
}

// New returns a store of a new [Server] without values. Stores of the same values come only from
// [Server.Connect].
func New() *Store { return new(Server).Connect() }

// Store is a [settings.Store] in memory. Make one with [New] or [Server.Connect].
type Store struct {
	server  *Server
	closed  bool // guarded by server.mu, as watches is
	watches map[*watch]struct{}
}

// watch calls a function on a goroutine when its signal is notified.
type watch struct {
	signal wake.Signal
	end    context.CancelFunc
}

var _ settings.Store = (*Store)(nil)

// Get implements [settings.Store]: it returns a copy of the value of key. Returns
// [settings.ErrNotFound] if the key has no value, [settings.ErrBad] for an invalid key, and
// [settings.ErrUnavailable] after Close or if ctx has ended. It takes the server's lock.
func (c *Store) Get(ctx context.Context, key string) (settings.Value, error) {
	if err := settings.CheckKey(key); err != nil {
		return settings.Value{}, err
	}
	defer c.lock()()
	if err := c.usable(ctx); err != nil {
		return settings.Value{}, err
	}
	v, ok := c.server.values[key]
	if !ok {
		return settings.Value{}, settings.ErrNotFound
	}
	v.Data = slices.Clone(v.Data)
	return v, nil
}

// Put implements [settings.Store]: it stores a copy of data, wakes the watches of all stores, and
// returns the new revision. Returns [settings.ErrConflict] if the present revision is another one,
// [settings.ErrFull], [settings.ErrBad], and [settings.ErrUnavailable] after Close or if ctx has
// ended. It takes the server's lock.
func (c *Store) Put(ctx context.Context, key string, data []byte, revision uint64) (uint64, error) {
	if err := settings.CheckPut(key, data); err != nil {
		return 0, err
	}
	s := c.server
	defer c.lock()()
	if err := c.usable(ctx); err != nil {
		return 0, err
	}
	switch {
	case s.values[key].Revision != revision:
		return 0, settings.ErrConflict
	case revision == 0 && len(s.values) >= settings.MaxKeys:
		return 0, settings.ErrFull
	}
	if s.values == nil {
		s.values = make(map[string]settings.Value)
	}
	s.last++
	s.values[key] = settings.Value{Key: key, Data: slices.Clone(data), Revision: s.last}
	s.notify()
	return s.last, nil
}

// Delete implements [settings.Store]: it removes the value of key and wakes the watches of all
// stores. Returns [settings.ErrConflict] if the key has no value or another revision,
// [settings.ErrBad] for an invalid key, and [settings.ErrUnavailable] after Close or if ctx has
// ended. It takes the server's lock.
func (c *Store) Delete(ctx context.Context, key string, revision uint64) error {
	if err := settings.CheckKey(key); err != nil {
		return err
	}
	defer c.lock()()
	if err := c.usable(ctx); err != nil {
		return err
	}
	if v, ok := c.server.values[key]; !ok || v.Revision != revision {
		return settings.ErrConflict
	}
	delete(c.server.values, key)
	c.server.notify()
	return nil
}

// List implements [settings.Store]: it returns copies of the values whose keys begin with prefix,
// sorted by key. Returns [settings.ErrUnavailable] after Close or if ctx has ended. It takes the
// server's lock.
func (c *Store) List(ctx context.Context, prefix string) ([]settings.Value, error) {
	defer c.lock()()
	if err := c.usable(ctx); err != nil {
		return nil, err
	}
	var all []settings.Value
	for _, key := range slices.Sorted(maps.Keys(c.server.values)) {
		if v := c.server.values[key]; strings.HasPrefix(key, prefix) {
			v.Data = slices.Clone(v.Data)
			all = append(all, v)
		}
	}
	return all, nil
}

// Watch implements [settings.Store]: it starts a goroutine that calls changed after each change,
// until stop or Close. After Close it starts nothing. It takes the server's lock, and so does stop.
func (c *Store) Watch(changed func()) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	w := &watch{signal: wake.New(), end: cancel}
	defer c.lock()()
	if c.closed {
		cancel()
		return cancel
	}
	c.watches[w] = struct{}{}
	go func() {
		for {
			select {
			case <-w.signal:
				changed()
			case <-ctx.Done():
				return
			}
		}
	}()
	return func() {
		defer c.lock()()
		delete(c.watches, w)
		cancel()
	}
}

// Close implements [settings.Store]: it ends the watches of this store and returns nil. Other calls
// then return [settings.ErrUnavailable]. The values stay in the server. It takes the server's lock.
func (c *Store) Close(context.Context) error {
	defer c.lock()()
	c.closed = true
	for w := range c.watches {
		w.end()
	}
	clear(c.watches)
	delete(c.server.stores, c)
	return nil
}

// lock takes the server's lock and returns the function that releases it.
func (c *Store) lock() (unlock func()) {
	c.server.mu.Lock()
	return c.server.mu.Unlock
}

// usable returns [settings.ErrUnavailable] after Close, and with the cause of ctx if ctx has ended.
// Otherwise it returns nil. Call it with the server's lock held.
func (c *Store) usable(ctx context.Context) error {
	if c.closed {
		return settings.ErrUnavailable
	}
	return settings.Ended(ctx)
}

// notify wakes all watches of all stores. Call it with s.mu held.
func (s *Server) notify() {
	for c := range s.stores {
		for w := range c.watches {
			w.signal.Notify()
		}
	}
}

package task

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
)

// Handler runs a task. The returned error is the verdict: nil succeeded, [Retry], [Snooze] and [Fail] say what they say,
// and any other error fails the task. Handlers run concurrently. The context ends when the task's time limit passes, when
// the broker took the task back, or when the consumer stops at once; it is never the one given to the consumer's Run.
type Handler interface {
	Handle(ctx context.Context, r *Request) (any, error)
}

// HandlerFunc makes a Handler of a function.
type HandlerFunc func(ctx context.Context, r *Request) (any, error)

// Handle calls f.
func (f HandlerFunc) Handle(ctx context.Context, r *Request) (any, error) { return f(ctx, r) }

// Registrar takes handlers by name. A consumer is one, and so is [Mux].
type Registrar interface {
	// Register adds h under name. defaults are the definition's metadata as this process knows them: they apply to tasks
	// whose message does not carry them, such as those of other languages. A second handler of a name is [ErrDuplicateTask].
	Register(name string, h Handler, defaults Metadata) error
}

// Mux is a Registrar that keeps its handlers in memory. The zero value is empty and ready; it is safe for concurrent use.
// Names are 1 to 255 bytes without control characters; one that goes to a broker obeys [CheckName] besides, which the
// producer checks.
type Mux struct {
	mu      sync.Mutex                           // one Register at a time
	entries atomic.Pointer[map[string]*muxEntry] // replaced, never changed: each task is looked up, and few handlers come
}

type muxEntry struct {
	handler  Handler
	defaults Metadata
}

// Register implements [Registrar].
func (m *Mux) Register(name string, h Handler, defaults Metadata) error {
	if err := checkHandlerName(name); err != nil {
		return err
	}
	if h == nil {
		return fmt.Errorf("swarmiji: handler of %q is nil", name)
	}
	if err := defaults.Check(); err != nil {
		return fmt.Errorf("task %q: %w", name, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	before := m.all()
	if _, taken := before[name]; taken {
		return fmt.Errorf("%w: %q", ErrDuplicateTask, name)
	}
	after := make(map[string]*muxEntry, len(before)+1)
	maps.Copy(after, before)
	after[name] = &muxEntry{h, defaults}
	m.entries.Store(&after)
	return nil
}

// all returns the handlers by name; the map is for reading.
func (m *Mux) all() map[string]*muxEntry {
	if p := m.entries.Load(); p != nil {
		return *p
	}
	return nil
}

// Lookup returns the handler of a name and its definition's metadata, which are for reading. They are nil where there is none.
func (m *Mux) Lookup(name string) (h Handler, defaults *Metadata, ok bool) {
	if e, ok := m.all()[name]; ok {
		return e.handler, &e.defaults, true
	}
	return nil, nil, false
}

// Names returns the registered names, sorted.
func (m *Mux) Names() []string {
	all := m.all()
	names := slices.AppendSeq(make([]string, 0, len(all)), maps.Keys(all))
	slices.Sort(names)
	return names
}

func checkHandlerName(name string) error {
	if len(name) == 0 || len(name) > 255 {
		return fmt.Errorf("%w: a handler's name has 1 to 255 bytes, not %d", ErrBadName, len(name))
	}
	for i := range len(name) {
		if name[i] < 0x20 || name[i] == 0x7f {
			return fmt.Errorf("%w: control character in %q", ErrBadName, name)
		}
	}
	return nil
}

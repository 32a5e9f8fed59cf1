package task

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
)

// Handler runs a task. A nil error is a success. [Retry], [Snooze], [Fail] and [Defer] return
// errors with a meaning of their own; any other error fails the task or applies its [RetryPolicy].
// Handlers run concurrently.
//
// The context ends when the task's time limit passes, when the broker has taken the task back, or
// when the consumer stops at once. It is never the context of the consumer's Run.
type Handler interface {
	Handle(ctx context.Context, r *Request) (any, error)
}

// HandlerFunc is a function that implements Handler.
type HandlerFunc func(ctx context.Context, r *Request) (any, error)

// Handle calls f.
func (f HandlerFunc) Handle(ctx context.Context, r *Request) (any, error) { return f(ctx, r) }

// Registrar registers handlers by name. Consumers and [Mux] implement it.
type Registrar interface {
	// Register registers h under name. defaults are the metadata of the definition in this process;
	// they apply to tasks whose message does not carry them, such as those of other languages. Returns
	// [ErrDuplicateTask] if the name has a handler.
	Register(name string, h Handler, defaults Metadata) error
}

// Mux is a Registrar that keeps its handlers in memory. The zero value is empty and ready for use.
// Safe for concurrent use.
//
// Names have 1 to 255 bytes without control characters. The producer also checks the names of the
// tasks that it sends with [CheckName].
type Mux struct {
	mu sync.Mutex // held during Register
	// replaced, never changed: lookups are frequent and registrations rare
	entries atomic.Pointer[map[string]*muxEntry]
}

type muxEntry struct {
	handler  Handler
	defaults Metadata
}

// Register implements [Registrar]. Returns [ErrBadName] for an invalid name, [ErrBadMetadata] for
// invalid defaults, and an error if h is nil.
func (m *Mux) Register(name string, h Handler, defaults Metadata) error {
	if err := checkHandlerName(name); err != nil {
		return err
	}
	if h == nil {
		return fmt.Errorf("swarmiji: the handler of task %q is nil", name)
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

// all returns the handlers by name. Do not change the map.
func (m *Mux) all() map[string]*muxEntry {
	if p := m.entries.Load(); p != nil {
		return *p
	}
	return nil
}

// Lookup returns the handler with this name and the metadata of its definition, which must not be
// changed. ok is false if no such handler is registered.
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
		return fmt.Errorf("%w: a handler name needs 1 to 255 bytes, found %d", ErrBadName, len(name))
	}
	for i := range len(name) {
		if name[i] < 0x20 || name[i] == 0x7f {
			return fmt.Errorf("%w: control character in %q", ErrBadName, name)
		}
	}
	return nil
}

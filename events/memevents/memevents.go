// Package memevents carries events through the memory of the process: for tests, for programs that run producer and
// consumer in one process, and as the reference for authors of buses.
package memevents

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/internal/ring"
)

// DefaultBuffer is how many events wait for a subscription that does not read them.
const DefaultBuffer = 8192

// Config of [New]. The zero value is usable.
type Config struct {
	// Buffer is how many events wait for each subscription that does not read them; beyond it the oldest are dropped. 0 or
	// less: [DefaultBuffer], 8,192.
	Buffer int
	// Retain says which events are kept for [Bus.Replay], and how long. Negative values count as 0: nothing is kept, or
	// [events.DefaultRetained] of them. Zero: nothing.
	Retain events.Retention
}

// Bus is one process's view of a bus in memory. [Bus.View] gives further views of the same bus, for programs that play
// several processes; every view is closed on its own. Make the first with [New]. All methods may be called from any
// goroutine; none waits. An event that nobody listens to costs a few nanoseconds.
//
// Listeners get events as [events.Normalize] describes them, as they would over a wire. One that it refuses is dropped.
type Bus struct {
	h       *hub
	closed  atomic.Bool // written under h.mu
	dropped atomic.Uint64
	own     []*subscription // guarded by h.mu
	replays []*replay       // guarded by h.mu
}

// hub is what the views share.
type hub struct {
	buffer int
	log    *log                            // nil: nothing is kept
	all    atomic.Pointer[[]*subscription] // replaced under mu, never changed

	mu sync.Mutex
}

// New makes a bus without listeners. It starts nothing.
func New(c Config) *Bus {
	if c.Buffer <= 0 {
		c.Buffer = DefaultBuffer
	}
	h := &hub{buffer: c.Buffer}
	if keep := c.Retain; keep.On() {
		if keep.Max <= 0 {
			keep.Max = events.DefaultRetained
		}
		keep.Types = slices.Clone(keep.Types)
		h.log = &log{keep: keep}
	}
	return &Bus{h: h}
}

// View returns another view of the same bus, as another process would have. A view of a closed one is closed.
func (b *Bus) View() *Bus {
	v := &Bus{h: b.h}
	v.closed.Store(b.closed.Load())
	return v
}

// Publish implements [events.EventBus].
func (b *Bus) Publish(_ context.Context, e events.Event) error { return b.PublishNow(e) }

// PublishNow implements [events.PromptPublisher].
func (b *Bus) PublishNow(e events.Event) error {
	if b.closed.Load() {
		return events.ErrClosed
	}
	log := b.h.log
	if log != nil && !log.keep.Keeps(e.Type) {
		log = nil
	}
	var subs []*subscription
	if all := b.h.all.Load(); all != nil {
		subs = *all
	}
	if log == nil && !wanted(subs, &e) {
		return nil
	}
	if events.Normalize(&e) != nil { // an event that cannot travel is dropped and counted, never an error
		b.dropped.Add(1)
		return nil //nolint:nilerr // as it says
	}
	if log != nil {
		kept := e // on the heap, where the others need not be
		log.add(&kept)
	}
	for _, s := range subs {
		if s.filter.Match(&e) {
			s.Put(&e)
		}
	}
	return nil
}

// wanted reports whether anybody listens to e.
func wanted(subs []*subscription, e *events.Event) bool {
	for _, s := range subs {
		if s.filter.Match(e) {
			return true
		}
	}
	return false
}

// Subscribe implements [events.EventBus].
func (b *Bus) Subscribe(ctx context.Context, f events.Filter) (events.Subscription, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	f.Types = slices.Clone(f.Types)
	s := &subscription{
		Stream: ring.NewStream[events.Event](b.h.buffer, events.ErrClosed),
		bus:    b,
		filter: f,
	}
	b.h.mu.Lock()
	defer b.h.mu.Unlock()
	if b.closed.Load() {
		return nil, events.ErrClosed
	}
	b.own = append(b.own, s)
	b.h.replace(func(all []*subscription) []*subscription { return append(all, s) })
	return s, nil
}

// Dropped implements [events.DropCounter]: the events published here that [events.Normalize] refused. What a slow
// subscription lost is counted there.
func (b *Bus) Dropped() uint64 { return b.dropped.Load() }

// Close implements [events.EventBus]: it ends the subscriptions of this view. Nothing waits for being sent, so it returns
// nil at once.
func (b *Bus) Close(context.Context) error {
	b.h.mu.Lock()
	defer b.h.mu.Unlock()
	if b.closed.Swap(true) {
		return nil
	}
	for _, s := range b.own {
		s.Stream.Close()
	}
	for _, r := range b.replays {
		close(r.done)
	}
	b.h.replace(func(all []*subscription) []*subscription {
		return slices.DeleteFunc(all, func(s *subscription) bool { return s.bus == b })
	})
	b.own, b.replays = nil, nil
	return nil
}

// replace sets the list of subscriptions to what change makes of a copy of it. The caller holds mu.
func (h *hub) replace(change func([]*subscription) []*subscription) {
	var all []*subscription
	if p := h.all.Load(); p != nil {
		all = slices.Clone(*p)
	}
	if all = change(all); len(all) == 0 {
		h.all.Store(nil)
		return
	}
	h.all.Store(&all)
}

// subscription implements events.Subscription and events.DropCounter. Its stream holds the events themselves, which spares
// an allocation for each; their Fields all listeners share.
type subscription struct {
	*ring.Stream[events.Event]
	bus    *Bus
	filter events.Filter
}

// Receive implements [events.Subscription].
func (s *subscription) Receive(ctx context.Context) (e events.Event, err error) {
	if e, err = s.Get(ctx); err == nil {
		own(&e)
	}
	return e, err
}

// own replaces what listeners share of an event by copies.
func own(e *events.Event) {
	if e.Fields != nil {
		e.Fields = copyMap(e.Fields)
	}
	if e.Worker != nil {
		w := *e.Worker
		e.Worker = &w
	}
}

// Close implements [events.Subscription].
func (s *subscription) Close(context.Context) error {
	h := s.bus.h
	h.mu.Lock()
	defer h.mu.Unlock()
	same := func(o *subscription) bool { return o == s }
	s.bus.own = slices.DeleteFunc(s.bus.own, same)
	h.replace(func(all []*subscription) []*subscription { return slices.DeleteFunc(all, same) })
	s.Stream.Close()
	return nil
}

// copyMap copies a map of values in the types of JSON, and what is in it.
func copyMap(m map[string]any) map[string]any {
	c := maps.Clone(m)
	for k, v := range c {
		c[k] = copyValue(v)
	}
	return c
}

func copyValue(v any) any {
	switch v := v.(type) {
	case map[string]any:
		return copyMap(v)
	case []any:
		c := slices.Clone(v)
		for i := range c {
			c[i] = copyValue(c[i])
		}
		return c
	}
	return v
}

var (
	_ events.EventBus        = (*Bus)(nil)
	_ events.DropCounter     = (*Bus)(nil)
	_ events.PromptPublisher = (*Bus)(nil)
	_ events.Subscription    = (*subscription)(nil)
	_ events.DropCounter     = (*subscription)(nil)
)

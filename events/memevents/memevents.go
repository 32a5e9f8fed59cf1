// Package memevents delivers events in the memory of one process. It serves tests and programs that
// run producer and consumer in one process. Authors of buses may read it as the reference.
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

// DefaultBuffer is the default of Config.Buffer.
const DefaultBuffer = 8192

// Config holds the settings of [New]. The zero value is usable.
type Config struct {
	// Buffer is the number of events that wait for each slow subscription. Beyond it the oldest are
	// dropped. 0 or less: [DefaultBuffer], 8,192.
	Buffer int
	// Retain selects the events that are kept for [Bus.Replay]. The zero value and a negative Age keep
	// none. A Max of 0 or less is [events.DefaultRetained].
	Retain events.Retention
}

// Bus is one view of a bus in memory. [New] makes the first view and [Bus.View] further views, for
// programs that simulate several processes. Each view is closed separately. All methods are safe
// for concurrent use, and only Receive blocks. Publishing an event without a listener costs a few
// nanoseconds.
//
// Listeners receive events as [events.Normalize] changes them, like over a network. An event that
// Normalize refuses is dropped.
type Bus struct {
	h       *hub
	closed  atomic.Bool // written under h.mu
	dropped atomic.Uint64
	subs    []*subscription // subscriptions of this view; guarded by h.mu
	replays []*replay       // guarded by h.mu
}

// hub holds the listeners and the kept events that all views share.
type hub struct {
	buffer int
	log    *log                            // nil: no event is kept
	all    atomic.Pointer[[]*subscription] // replaced under mu, never changed

	mu sync.Mutex
}

// New makes a bus without listeners. A Buffer of 0 or less becomes DefaultBuffer. If events are
// retained, a Retain.Max of 0 or less becomes events.DefaultRetained. It starts no goroutine and
// cannot fail.
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

// View returns another view of the same bus, as another process would have it. A view of a closed
// view is closed.
func (b *Bus) View() *Bus {
	v := &Bus{h: b.h}
	v.closed.Store(b.closed.Load())
	return v
}

// Publish implements [events.EventBus]: it calls PublishNow and ignores its context.
func (b *Bus) Publish(_ context.Context, e events.Event) error { return b.PublishNow(e) }

// PublishNow implements [events.PromptPublisher]: it normalizes e, keeps it if its type is kept,
// and adds it to the buffer of every matching subscription, of all views. A full buffer drops its
// oldest event. It never waits for a listener. It takes log.mu if it keeps e.
//
// If no subscription matches and the type is not kept, it does nothing and returns nil. Otherwise
// an event that Normalize refuses is dropped and counted by Dropped, and PublishNow returns nil.
// Returns ErrClosed after Close of the view.
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
	if events.Normalize(&e) != nil { // an event that cannot be sent is counted, never an error
		b.dropped.Add(1)
		return nil //nolint:nilerr // as it says
	}
	if log != nil {
		kept := e // only a kept event is moved to the heap
		log.add(&kept)
	}
	for _, s := range subs {
		if s.filter.Match(&e) {
			s.Put(&e)
		}
	}
	return nil
}

// wanted reports whether any of subs matches e.
func wanted(subs []*subscription, e *events.Event) bool {
	for _, s := range subs {
		if s.filter.Match(e) {
			return true
		}
	}
	return false
}

// Subscribe implements [events.EventBus]: it returns a stream of the new events that match f, with
// its own buffer. It does not block. Returns ErrClosed after Close, and ctx's error if ctx has
// ended. It takes h.mu.
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
	b.subs = append(b.subs, s)
	b.h.replace(func(all []*subscription) []*subscription { return append(all, s) })
	return s, nil
}

// Dropped implements [events.DropCounter]: it counts the events published on this view that
// [events.Normalize] refused. Each subscription counts the events that it lost.
func (b *Bus) Dropped() uint64 { return b.dropped.Load() }

// Close implements [events.EventBus]: it ends all subscriptions and replays of this view and drops
// their waiting events; other views continue. No event waits to be sent, so it returns nil at once.
// Further calls do nothing. It takes h.mu.
func (b *Bus) Close(context.Context) error {
	b.h.mu.Lock()
	defer b.h.mu.Unlock()
	if b.closed.Swap(true) {
		return nil
	}
	for _, s := range b.subs {
		s.Stream.Close()
	}
	for _, r := range b.replays {
		close(r.done)
	}
	b.h.replace(func(all []*subscription) []*subscription {
		return slices.DeleteFunc(all, func(s *subscription) bool { return s.bus == b })
	})
	b.subs, b.replays = nil, nil
	return nil
}

// replace replaces the list of subscriptions by the result of change, which receives a copy. Call
// it with h.mu held.
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

// subscription implements events.Subscription and events.DropCounter. Its stream holds events by
// value, which saves an allocation for each. All listeners share the Fields of an event.
type subscription struct {
	*ring.Stream[events.Event]
	bus    *Bus
	filter events.Filter
}

// Receive implements [events.Subscription]: it waits for the next event in the buffer and returns
// it with its own copies of Fields and Worker. A waiting event is returned even if ctx has ended.
// Returns ctx's error when ctx ends and ErrClosed after Close of the subscription or its view.
func (s *subscription) Receive(ctx context.Context) (e events.Event, err error) {
	if e, err = s.Get(ctx); err == nil {
		unshare(&e)
	}
	return e, err
}

// unshare replaces Fields and Worker of e, which listeners share, by copies.
func unshare(e *events.Event) {
	if e.Fields != nil {
		e.Fields = copyMap(e.Fields)
	}
	if e.Worker != nil {
		w := *e.Worker
		e.Worker = &w
	}
}

// Close implements [events.Subscription]: it removes the subscription from the bus, drops the
// events in its buffer and ends every Receive. It returns nil. Further calls do nothing. It takes
// h.mu.
func (s *subscription) Close(context.Context) error {
	h := s.bus.h
	h.mu.Lock()
	defer h.mu.Unlock()
	same := func(o *subscription) bool { return o == s }
	s.bus.subs = slices.DeleteFunc(s.bus.subs, same)
	h.replace(func(all []*subscription) []*subscription { return slices.DeleteFunc(all, same) })
	s.Stream.Close()
	return nil
}

// copyMap returns a deep copy of a map of values in the types of JSON.
func copyMap(m map[string]any) map[string]any {
	c := maps.Clone(m)
	for k, v := range c {
		c[k] = copyValue(v)
	}
	return c
}

// copyValue returns a deep copy of a value in the types of JSON.
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

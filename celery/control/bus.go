package control

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/internal/ring"
)

// DefaultBuffer is the default of [Config].Buffer.
const DefaultBuffer = 8192

// Config holds the settings of [NewBus]. Only Transport must be set.
type Config struct {
	// Transport carries the messages. Close of the bus closes it.
	Transport Transport
	// Batch configures how events are collected into messages and how many may wait. Zero: the
	// defaults of [events.BatcherConfig].
	Batch events.BatcherConfig
	// Host is the name of the machine. A node of this process is NODE@HOST for Celery, unless its id
	// has a "@". Default: os.Hostname().
	Host string
	// Buffer is the number of events that wait in this process for each slow subscription. Beyond it
	// the oldest are dropped and counted. 0: [DefaultBuffer], 8,192.
	Buffer int
}

// Bus is an [events.EventBus] on Celery's exchange of events. It keeps no events, so that it is not
// an [events.Retainer]. All methods are safe for concurrent use.
//
//   - The type, the task and the node of an event are Celery's fields type, uuid and hostname. The
//     hostname of the node "a" is "a@HOST".
//   - Producers are not shown to Celery, which would take them for workers. Their task-sent is.
//   - An attempt that failed and will be repeated is task-retried for Celery.
//   - A worker-offline about another node is sent under a type that Celery does not know: its
//     monitors decide by the heartbeats alone.
//   - All other fields arrive at buses of this package without a change. Celery ignores them.
type Bus struct {
	transport Transport
	host      string
	buffer    int
	batcher   *events.Batcher
	clock     clock
	quiet     atomic.Bool // whether events of tasks are disabled

	mu     sync.Mutex
	closed bool
	open   map[*subscription]struct{}
	beats  map[string]events.Event // the last heartbeat of each node of this process
}

// maxBeats limits the nodes of one process whose heartbeats can be repeated.
const maxBeats = 64

// NewBus returns a Bus. It does no I/O and starts no goroutine before the first event. Returns an
// error without a Transport or for a negative Buffer.
func NewBus(c Config) (*Bus, error) {
	var errs []error
	if c.Transport == nil {
		errs = append(errs, errors.New("celery/control: Transport is not set"))
	}
	if c.Buffer < 0 {
		errs = append(errs, errors.New("celery/control: Buffer is negative"))
	}
	if c.Buffer == 0 {
		c.Buffer = DefaultBuffer
	}
	if c.Host == "" {
		if c.Host, _ = os.Hostname(); c.Host == "" {
			c.Host = "localhost"
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	b := &Bus{transport: c.Transport, host: c.Host, buffer: c.Buffer, open: make(map[*subscription]struct{}), beats: make(map[string]events.Event)}
	b.batcher = events.NewBatcher(b.send, c.Batch)
	return b, nil
}

// celeryName returns the name of a node for Celery.
func (b *Bus) celeryName(node string) string {
	if node == "" || strings.Contains(node, "@") {
		return node
	}
	return node + "@" + b.host
}

// send publishes a message of the batcher in Celery's form. Events of tasks that follow each other
// share a message, and each other event has its own. Returns the first error of the transport; the
// rest is not sent then.
func (b *Bus) send(ctx context.Context, message []byte, _ int) error {
	es, err := events.Decode(message)
	if err != nil {
		return err
	}
	var list []map[string]any
	flush := func() error {
		if len(list) == 0 {
			return nil
		}
		body, err := json.Marshal(list)
		list = nil
		if err != nil {
			return err
		}
		return b.publish(ctx, "task.multi", es[0].NodeID, body)
	}
	for i := range es {
		e := &es[i]
		m := toCelery(e, b.celeryName(e.NodeID), b.clock.forward())
		if isTask(m) {
			list = append(list, m)
			continue
		}
		if err := flush(); err != nil {
			return err
		}
		body, err := json.Marshal(m)
		if err != nil {
			return err
		}
		if err := b.publish(ctx, routingKey(m), e.NodeID, body); err != nil {
			return err
		}
	}
	return flush()
}

// publish publishes a body on the exchange of events.
func (b *Bus) publish(ctx context.Context, key, node string, body []byte) error {
	return b.transport.Publish(ctx, &Message{Exchange: Events, Key: key, Headers: map[string]any{"hostname": b.celeryName(node)}, JSON: true, Body: body})
}

// Publish implements [events.EventBus]: it calls PublishNow and ignores its context.
func (b *Bus) Publish(_ context.Context, e events.Event) error { return b.PublishNow(e) }

// PublishNow implements [events.PromptPublisher]: it queues e. A full queue drops its oldest event.
// PublishNow never blocks. Returns ErrClosed after Close.
func (b *Bus) PublishNow(e events.Event) error {
	if b.quiet.Load() && ofTask(e.Type) {
		if b.batcher.Closed() {
			return events.ErrClosed
		}
		return nil
	}
	if e.Type == events.WorkerHeartbeat {
		b.mu.Lock()
		if _, known := b.beats[e.NodeID]; known || len(b.beats) < maxBeats {
			b.beats[e.NodeID] = e
		}
		b.mu.Unlock()
	}
	return b.batcher.Add(e)
}

// EnableTaskEvents switches the events of this process about tasks on or off, and reports whether
// that is a change. They are on at first. Celery's commands enable_events and disable_events do the
// same. Events about nodes and revocations are always sent.
func (b *Bus) EnableTaskEvents(on bool) (changed bool) { return b.quiet.Swap(!on) == on }

// Dropped implements [events.DropCounter]. It counts events published on this bus that were dropped
// before the transport took them, or that cannot be encoded.
func (b *Bus) Dropped() uint64 { return b.batcher.Dropped() }

// Close implements [events.EventBus]. It sends the waiting events, ends the subscriptions, whose
// unread events are dropped, and closes the Transport. If ctx ends first it drops the rest and
// returns ctx's error.
func (b *Bus) Close(ctx context.Context) error {
	b.mu.Lock()
	b.closed = true
	open := slices.Collect(maps.Keys(b.open))
	b.mu.Unlock()
	errs := []error{b.batcher.Close(ctx)}
	for _, s := range open {
		s.stream.Close()
	}
	return errors.Join(append(errs, b.transport.Close(ctx))...)
}

// subscription is a stream of events.
type subscription struct {
	bus       *Bus
	filter    events.Filter
	stream    *ring.Stream[events.Event]
	listener  Listener
	malformed atomic.Uint64
}

// Subscribe implements [events.EventBus]: it returns a stream of the new events that match f, of Go
// nodes and of Python workers. It blocks until the stream is open and tries until ctx ends. If ctx
// has already ended, it returns ctx's error unwrapped. Returns the errors of [Transport].Listen.
func (b *Bus) Subscribe(ctx context.Context, f events.Filter) (events.Subscription, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	f.Types = slices.Clone(f.Types)
	s := &subscription{bus: b, filter: f, stream: ring.NewStream[events.Event](b.buffer, events.ErrClosed)}
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return nil, events.ErrClosed
	}
	b.open[s] = struct{}{}
	b.mu.Unlock()
	l, err := b.transport.Listen(ctx, Mailbox{Exchange: Events, Keys: bindings(f)}, s.handle)
	if err != nil {
		s.forget()
		return nil, err
	}
	s.listener = l
	return s, nil
}

// bindings returns the routing keys of the events that f may select.
func bindings(f events.Filter) []string {
	if len(f.Types) == 0 || slices.ContainsFunc(f.Types, func(t string) bool { return !slices.Contains(events.WorkerTypes(), t) }) {
		return []string{"#"}
	}
	return []string{"worker.#", ownKey + ".worker.#"}
}

// handle adds the matching events of a message to the stream. It counts an invalid event as one
// dropped event. It does not block.
func (s *subscription) handle(m *Message) {
	es, ok := fromCelery(m, &s.bus.clock)
	if !ok {
		s.malformed.Add(1)
	}
	for i := range es {
		if s.filter.Match(&es[i]) {
			s.stream.Put(&es[i])
		}
	}
}

// Receive implements [events.Subscription].
func (s *subscription) Receive(ctx context.Context) (events.Event, error) { return s.stream.Get(ctx) }

// Dropped implements [events.DropCounter]: it counts events that newer ones replaced in the buffer,
// and invalid messages.
func (s *subscription) Dropped() uint64 { return s.stream.Dropped() + s.malformed.Load() }

// Close implements [events.Subscription]: it ends the stream, and the listener if ctx does not end
// first.
func (s *subscription) Close(ctx context.Context) error {
	s.forget()
	return s.listener.Close(ctx)
}

// forget ends the stream and removes s from the bus. It takes bus.mu.
func (s *subscription) forget() {
	s.stream.Close()
	s.bus.mu.Lock()
	delete(s.bus.open, s)
	s.bus.mu.Unlock()
}

var (
	_ events.EventBus        = (*Bus)(nil)
	_ events.DropCounter     = (*Bus)(nil)
	_ events.PromptPublisher = (*Bus)(nil)
	_ events.Subscription    = (*subscription)(nil)
	_ events.DropCounter     = (*subscription)(nil)
)

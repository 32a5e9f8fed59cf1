package membroker

import (
	"cmp"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/naming"
)

// DefaultMaxBody is the default of [Config].MaxBody, in bytes.
const DefaultMaxBody = 16 << 20

// Config tunes a [Server]. The zero value is usable.
type Config struct {
	// MaxBody limits the body of a message, and separately its headers and properties, in bytes.
	// Larger ones are broker.ErrTooLarge. Default: [DefaultMaxBody]. Negative: no limit.
	MaxBody int
	// MaxQueue limits the messages that wait in a queue, including delayed ones. If it is full,
	// publishing waits for room until its ctx ends, and returns broker.ErrBlocked. Messages that are
	// returned or retried are never refused. 0 or negative: no limit.
	MaxQueue int
	// DeadTTL is the retention of a dead letter. Default: broker.DefaultDeadTTL. Negative: no limit.
	DeadTTL time.Duration
	// DeadMax limits the dead letters of a queue. The oldest are removed first. Default:
	// broker.DefaultDeadMax. Negative: no limit.
	DeadMax int
	// Logger receives one report per queue that is declared with other levels than it has. Default:
	// slog.Default().
	Logger *slog.Logger
}

// Server owns queues, like the server of another adapter, and lives as long as a reference to it
// exists. Its methods may be called from any goroutine.
type Server struct {
	maxBody, maxQueue int
	deadTTL           time.Duration
	deadMax           int
	log               *slog.Logger
	clock             clock
	waiters           sync.Pool
	notes             notes

	queues atomic.Pointer[map[string]*queue] // replaced, never changed, because every Publish reads it

	// guards the replacement of queues and the following fields; a Broker's mutex may be taken while
	// it is held
	mu    sync.Mutex
	conns map[*Broker]struct{}
	down  bool
}

// NewServer returns a Server without queues. It starts no goroutine.
func NewServer(c Config) *Server {
	s := &Server{
		maxBody: c.MaxBody, maxQueue: c.MaxQueue, deadTTL: cmp.Or(c.DeadTTL, broker.DefaultDeadTTL),
		deadMax: cmp.Or(c.DeadMax, broker.DefaultDeadMax), log: c.Logger, conns: make(map[*Broker]struct{}),
	}
	if s.maxBody == 0 {
		s.maxBody = DefaultMaxBody
	}
	if s.log == nil {
		s.log = slog.Default()
	}
	s.queues.Store(&map[string]*queue{})
	return s
}

// Connect returns a new connection, like that of another process. While the server is down the
// connection is disconnected, as after a loss. It takes s.mu.
func (s *Server) Connect() *Broker {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := newBroker(s, !s.down)
	s.conns[b] = struct{}{}
	return b
}

// Disconnect cuts the connection of b, for tests, as a network failure would. Its unsettled
// deliveries are lost and go back to their old places in their queues. b reconnects at once and its
// subscriptions continue, unless the server is down or b is isolated. It takes s.mu.
func (s *Server) Disconnect(b *Broker) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b.disconnect(errSevered)
	if !s.down && b.isolations == 0 {
		b.reconnect()
	}
}

// Isolate cuts the connection of b, for tests, until back is called. The other connections stay.
// For them the process of b looks dead. With several calls, b reconnects after the last back, or
// after Up if the server is down. A second call of the same back does nothing. Isolate and back
// take s.mu.
func (s *Server) Isolate(b *Broker) (back func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b.isolations++
	b.disconnect(errSevered)
	return sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if b.isolations--; b.isolations == 0 && !s.down {
			b.reconnect()
		}
	})
}

// Down makes the server unreachable, for tests, until Up is called. Every connection is cut: its
// unsettled messages go back, its watchers get Disconnected, and calls wait until their ctx ends.
// The queues keep their messages, as on a durable server. It takes s.mu.
func (s *Server) Down() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down = true
	for b := range s.conns {
		b.disconnect(errDown)
	}
}

// Up makes the server reachable again. Every Broker that is not isolated reconnects, and its
// watchers get Connected. It takes s.mu.
func (s *Server) Up() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down = false
	for b := range s.conns {
		if b.isolations == 0 {
			b.reconnect()
		}
	}
}

// queue returns the queue with the given name. It takes no lock. Returns broker.ErrNoQueue if the
// queue does not exist, broker.ErrMalformed if the name is not valid.
func (s *Server) queue(name string) (*queue, error) {
	if q, ok := (*s.queues.Load())[name]; ok {
		return q, nil
	}
	if err := checkName(name); err != nil {
		return nil, err
	}
	return nil, fmt.Errorf("membroker: queue %q: %w", name, broker.ErrNoQueue)
}

// ensure returns the queue with the given name and creates it if it does not exist. Returns
// broker.ErrMalformed if the name is not valid. It takes s.mu only to create the queue.
func (s *Server) ensure(name string) (*queue, error) {
	if q, ok := (*s.queues.Load())[name]; ok {
		return q, nil
	}
	if err := checkName(name); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	old := *s.queues.Load()
	if q, ok := old[name]; ok {
		return q, nil
	}
	qs := maps.Clone(old)
	qs[name] = newQueue(s, name)
	s.queues.Store(&qs)
	return qs[name], nil
}

// declare creates the queue d.Name with the levels d.Levels, fair or not. An existing queue that
// was never declared gets these settings. A declared queue keeps its own, and a difference is
// logged once per queue. Returns broker.ErrMalformed if the name is not valid, or the levels
// descend or are more than maxLevels. It takes s.mu, then the queue's mutex.
func (s *Server) declare(d broker.Queue) error {
	if !slices.IsSorted(d.Levels) || len(d.Levels) > maxLevels {
		return fmt.Errorf("membroker: levels of queue %q are not ascending or more than %d: %w", d.Name, maxLevels, broker.ErrMalformed)
	}
	q, err := s.ensure(d.Name)
	if err != nil {
		return err
	}
	q.mu.Lock()
	defer q.unlock()
	if !q.declared {
		q.declared = true
		q.setLevels(d.Levels, d.Fair)
		return nil
	}
	has := q.bounds()
	same := len(d.Levels) == 0 && len(has) == 1 || slices.Equal(has, d.Levels)
	if same && d.Fair == q.fair || q.warned {
		return nil
	}
	q.warned = true
	s.log.Warn("membroker: the queue exists with other priority levels or fairness and is used as it is",
		"queue", d.Name, "has", has, "has_fair", q.fair, "declared", d.Levels, "declared_fair", d.Fair)
	return nil
}

// maxLevels limits the priority levels of a queue.
const maxLevels = 255

// checkName returns broker.ErrMalformed if the queue name is not valid.
func checkName(name string) error {
	if naming.ValidName(name) {
		return nil
	}
	return fmt.Errorf("membroker: queue name %.64q: %w", name, broker.ErrMalformed)
}

// newWaiter returns a waiter from the pool, or a new one.
func (s *Server) newWaiter() *waiter {
	if w, ok := s.waiters.Get().(*waiter); ok {
		return w
	}
	return &waiter{ch: make(chan struct{}, 1)}
}

// freeWaiter clears a waiter and returns it to the pool. The caller must not use it afterwards.
func (s *Server) freeWaiter(w *waiter) {
	w.d, w.err, w.admitted = nil, nil, false
	s.waiters.Put(w)
}

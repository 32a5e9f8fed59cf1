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
	"github.com/swarmiji/swarmiji/internal/keyset"
)

// DefaultMaxBody is the largest body in bytes where Config names none.
const DefaultMaxBody = 16 << 20

// Config tunes a [Server]. The zero value is usable.
type Config struct {
	// MaxBody is the most bytes that the body, or the headers and properties, of a message may have; more is
	// broker.ErrTooLarge. 0: [DefaultMaxBody]; negative: no limit.
	MaxBody int
	// MaxQueue is how many messages may wait in a queue, delayed ones included. When it is full, publishing waits for room
	// until its ctx ends: broker.ErrBlocked. What is given back, retried or taken from the dead letters is never refused.
	// 0 or negative: no limit.
	MaxQueue int
	// DeadTTL is how long a dead letter is kept. 0: broker.DefaultDeadTTL; negative: for ever.
	DeadTTL time.Duration
	// DeadMax is how many dead letters a queue keeps; the oldest go first. 0:
	// broker.DefaultDeadMax; negative: no limit.
	DeadMax int
	// Logger is told once per queue that is declared with other levels than it has. Nil: slog.Default.
	Logger *slog.Logger
}

// Server owns queues, as another adapter's server does, and lives as long as something refers to it. Its methods may be
// called from any goroutine.
type Server struct {
	maxBody, maxQueue int
	deadTTL           time.Duration
	deadMax           int
	log               *slog.Logger
	clock             clock
	waiters           sync.Pool
	notes             notes

	queues atomic.Pointer[map[string]*queue] // replaced, never changed: every Publish reads it

	mu    sync.Mutex // guards the replacing of queues, and what follows. It may be taken before a Broker's
	conns map[*Broker]struct{}
	down  bool
}

// NewServer makes a Server without queues. It starts no goroutine.
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

// Connect returns a new connection, as of another process. While the server is down it waits for it, as after a loss.
func (s *Server) Connect() *Broker {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := newBroker(s, !s.down)
	s.conns[b] = struct{}{}
	return b
}

// Disconnect cuts the connection of b, for tests, as a network would: its unsettled deliveries are lost and go back to
// the front of their queues. b reconnects at once and its subscriptions go on.
func (s *Server) Disconnect(b *Broker) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b.disconnect(errSevered)
	if !s.down && b.away == 0 {
		b.reconnect()
	}
}

// Isolate takes the network from b, for tests, until back is called: to the others its process
// looks dead. Other connections stay as they are.
func (s *Server) Isolate(b *Broker) (back func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b.away++
	b.disconnect(errSevered)
	return sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if b.away--; b.away == 0 && !s.down {
			b.reconnect()
		}
	})
}

// Down makes the server unreachable, for tests, until Up: every connection is cut, and calls wait until their ctx ends.
// What the queues hold stays, as on a server that keeps its data.
func (s *Server) Down() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down = true
	for b := range s.conns {
		b.disconnect(errDown)
	}
}

// Up makes the server reachable again; every Broker reconnects.
func (s *Server) Up() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down = false
	for b := range s.conns {
		if b.away == 0 {
			b.reconnect()
		}
	}
}

// queue finds a queue; the error is broker.ErrNoQueue or broker.ErrMalformed.
func (s *Server) queue(name string) (*queue, error) {
	if q, ok := (*s.queues.Load())[name]; ok {
		return q, nil
	}
	if err := checkName(name); err != nil {
		return nil, err
	}
	return nil, fmt.Errorf("membroker: queue %q: %w", name, broker.ErrNoQueue)
}

// ensure finds a queue or makes it.
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

// declare makes a queue with levels, or gives them to one that was made by Subscribe and never declared.
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
		q.setLevels(d.Levels)
		return nil
	}
	has := make([]int, 0, len(q.levels))
	for i := range q.levels {
		has = append(has, q.levels[i].bound)
	}
	if len(d.Levels) == 0 && len(has) == 1 || slices.Equal(has, d.Levels) || q.warned {
		return nil
	}
	q.warned = true
	s.log.Warn("queue is used with the priority levels it has", "queue", d.Name, "has", has, "declared", d.Levels)
	return nil
}

// maxLevels is how many priority levels a queue may have.
const maxLevels = 255

func checkName(name string) error {
	if keyset.ValidName(name) {
		return nil
	}
	return fmt.Errorf("membroker: queue name %.64q: %w", name, broker.ErrMalformed)
}

func (s *Server) newWaiter() *waiter {
	if w, ok := s.waiters.Get().(*waiter); ok {
		return w
	}
	return &waiter{ch: make(chan struct{}, 1)}
}

func (s *Server) freeWaiter(w *waiter) {
	w.d, w.err, w.admitted = nil, nil, false
	s.waiters.Put(w)
}

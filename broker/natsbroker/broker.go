package natsbroker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/natsconn"
	"github.com/swarmiji/swarmiji/internal/wake"
)

// Broker is the NATS adapter of the port broker. All methods may be called from any goroutine.
type Broker struct {
	cfg   Config
	names names
	conn  *natsconn.Conn

	features atomic.Pointer[features]    // nil until the stream was found or made
	making   chan struct{}               // holds one value while somebody looks for the stream
	clock    atomic.Pointer[serverClock] // not nil once features are known
	asking   sync.Mutex                  // held while somebody asks for the server's time
	queues   sync.Map                    // name -> *queue, of queues that exist
	declared sync.Map                    // name -> []int, the levels of queues that this Broker has declared
	warned   sync.Map                    // what was said once -> struct{}
	outbox   outbox                      // settlements on their way
	witness  witness                     // notes of starts

	mu     sync.Mutex
	closed bool
	subs   map[*subscription]struct{}
	stop   context.Context // ends when the broker lets go of everything
	halt   context.CancelFunc
	tasks  sync.WaitGroup
}

var (
	_ broker.Broker         = (*Broker)(nil)
	_ broker.Delayer        = (*Broker)(nil)
	_ broker.BatchPublisher = (*Broker)(nil)
	_ broker.Retrier        = (*Broker)(nil)
	_ broker.Declarer       = (*Broker)(nil)
	_ broker.Inspector      = (*Broker)(nil)
	_ broker.Locator        = (*Broker)(nil)
	_ broker.DeadLetterer   = (*Broker)(nil)
	_ broker.Auditor        = (*Broker)(nil)
	_ broker.Finder         = (*Broker)(nil)
	_ broker.Watcher        = (*Broker)(nil)
	_ broker.Witness        = (*Broker)(nil)
	_ broker.Subscription   = (*subscription)(nil)
	_ broker.Resizer        = (*subscription)(nil)
	_ broker.Delivery       = (*delivery)(nil)
	_ broker.SyncAcker      = (*delivery)(nil)
)

// closeTimeout bounds Close.
const closeTimeout = 10 * time.Second

// New checks cfg and returns a Broker that connects when it is first used. All problems of cfg are reported together.
func New(cfg Config) (*Broker, error) {
	cfgErr := cfg.check()
	conn, err := natsconn.New(cfg.Connect, "", cfg.Logger)
	if err = errors.Join(cfgErr, err); err != nil {
		return nil, err
	}
	b := &Broker{cfg: cfg, names: newNames(cfg.Namespace), conn: conn, making: make(chan struct{}, 1), subs: make(map[*subscription]struct{})}
	b.cfg.Connect.URLs = nil // they hold passwords
	b.outbox.init(b)
	b.witness.enter = make(chan struct{}, 1)
	b.stop, b.halt = context.WithCancel(context.Background())
	return b, nil
}

func errClosed() error { return broker.ErrClosed }

func unavailable(ctx context.Context) error {
	return fmt.Errorf("%w: %w", broker.ErrUnavailable, context.Cause(ctx))
}

// pause waits and reports whether ctx and the Broker are still alive.
func (b *Broker) pause(ctx context.Context, d time.Duration) bool {
	return wake.SleepOr(ctx, b.stop.Done(), d)
}

// Watch implements [broker.Watcher].
func (b *Broker) Watch(fn func(s broker.ConnState, err error)) (stop func()) {
	return b.conn.Watch(func(s broker.ConnState, err error) {
		fn(s, wrap(err, "connect", "server"))
	})
}

// Close implements [broker.Broker]. What subscriptions hold goes back, settlements leave, publishes that wait for an answer
// get a short time for it.
func (b *Broker) Close(ctx context.Context) error {
	b.mu.Lock()
	b.closed = true
	subs := make([]*subscription, 0, len(b.subs))
	for s := range b.subs {
		subs = append(subs, s)
	}
	b.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, closeTimeout)
	defer cancel()
	var wg sync.WaitGroup
	for _, s := range subs {
		wg.Go(func() {
			_ = s.Close(ctx) // what cannot be given back in time goes back with its lease
			s.giveUp()
		})
	}
	wg.Wait()
	b.halt()
	err := b.conn.Close(ctx)
	b.tasks.Wait()
	return err
}

// background runs fn unless the Broker is closed; Close waits for it.
func (b *Broker) background(fn func(ctx context.Context)) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return false
	}
	b.tasks.Go(func() { fn(b.stop) })
	return true
}

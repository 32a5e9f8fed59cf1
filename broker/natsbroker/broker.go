package natsbroker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/lanes"
	"github.com/swarmiji/swarmiji/internal/natsconn"
	"github.com/swarmiji/swarmiji/internal/wake"
)

// Broker is the NATS adapter of the port broker. All methods may be called from any goroutine.
type Broker struct {
	cfg   Config
	names names
	conn  *natsconn.Conn

	features atomic.Pointer[features]    // nil until the stream was found or created
	creating chan struct{}               // holds one value while a goroutine creates the stream
	clock    atomic.Pointer[serverClock] // not nil once features are known
	asking   sync.Mutex                  // held while a goroutine asks for the server's time
	queues   sync.Map                    // name -> *queue, of queues that exist
	// name -> broker.Queue, of queues that this Broker has declared
	declared sync.Map
	lanes    lanes.Counter
	warned   sync.Map // messages that are logged only once -> struct{}
	outbox   outbox   // sends settlements
	witness  witness  // notes of starts

	mu     sync.Mutex
	closed bool
	subs   map[*subscription]struct{}
	stop   context.Context // ends when the Broker releases its resources
	halt   context.CancelFunc
	tasks  sync.WaitGroup
}

var (
	_ broker.Broker         = (*Broker)(nil)
	_ broker.Delayer        = (*Broker)(nil)
	_ broker.BatchPublisher = (*Broker)(nil)
	_ broker.Retrier        = (*Broker)(nil)
	_ broker.Declarer       = (*Broker)(nil)
	_ broker.Describer      = (*Broker)(nil)
	_ broker.Inspector      = (*Broker)(nil)
	_ broker.Locator        = (*Broker)(nil)
	_ broker.DeadLetterer   = (*Broker)(nil)
	_ broker.Auditor        = (*Broker)(nil)
	_ broker.Finder         = (*Broker)(nil)
	_ broker.QueueLister    = (*Broker)(nil)
	_ broker.Lister         = (*Broker)(nil)
	_ broker.DeadFinder     = (*Broker)(nil)
	_ broker.Watcher        = (*Broker)(nil)
	_ broker.Witness        = (*Broker)(nil)
	_ broker.Subscription   = (*subscription)(nil)
	_ broker.Resizer        = (*subscription)(nil)
	_ broker.Divider        = (*subscription)(nil)
	_ broker.Delivery       = (*delivery)(nil)
	_ broker.SyncAcker      = (*delivery)(nil)
)

// closeTimeout limits Close.
const closeTimeout = 10 * time.Second

// New checks cfg and returns a Broker. It does not connect before the first call that needs the
// server. The error joins all problems of cfg.
func New(cfg Config) (*Broker, error) {
	cfgErr := cfg.check()
	conn, err := natsconn.New(cfg.Connect, "", cfg.Logger)
	if err = errors.Join(cfgErr, err); err != nil {
		return nil, err
	}
	b := &Broker{cfg: cfg, names: newNames(cfg.Namespace), conn: conn, creating: make(chan struct{}, 1), subs: make(map[*subscription]struct{})}
	b.cfg.Connect.URLs = nil // they hold passwords
	b.outbox.init(b)
	b.witness.enter = make(chan struct{}, 1)
	b.stop, b.halt = context.WithCancel(context.Background())
	return b, nil
}

// errClosed returns broker.ErrClosed.
func errClosed() error { return broker.ErrClosed }

// unavailable returns ErrUnavailable with the cause of ctx's end.
func unavailable(ctx context.Context) error {
	return fmt.Errorf("%w: %w", broker.ErrUnavailable, context.Cause(ctx))
}

// pause blocks for d. It returns false if ctx or the Broker ended first.
func (b *Broker) pause(ctx context.Context, d time.Duration) bool {
	return wake.SleepOr(ctx, b.stop.Done(), d)
}

// Watch implements [broker.Watcher]. It reports the states of the Broker's only connection to fn,
// until stop is called: the current one and each change. fn runs on another goroutine, one call at
// a time. It does not connect.
func (b *Broker) Watch(fn func(s broker.ConnState, err error)) (stop func()) {
	return b.conn.Watch(func(s broker.ConnState, err error) {
		fn(s, wrap(err, "connect", "server"))
	})
}

// Close implements [broker.Broker]. It closes all subscriptions, marks the deliveries that they
// hold as lost, returns their messages to their queues, and sends outstanding settlements. Then it
// closes the connection and waits for the Broker's goroutines. It takes b.mu, but not while it
// waits.
//
// Close takes at most about 10 s, even if ctx lasts longer. Messages that could not be returned go
// back when their lease ends. Returns the error of closing the connection.
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
			_ = s.Close(ctx) // messages that are not returned in time go back when their lease ends
			s.returnUnsettled()
		})
	}
	wg.Wait()
	b.halt()
	err := b.conn.Close(ctx)
	b.tasks.Wait()
	return err
}

// background runs fn in a goroutine for which Close waits, and returns true. The ctx of fn ends
// during Close. Once Close has begun it does not run fn and returns false. It takes b.mu.
func (b *Broker) background(fn func(ctx context.Context)) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return false
	}
	b.tasks.Go(func() { fn(b.stop) })
	return true
}

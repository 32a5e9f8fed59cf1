package hworkerbroker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/redisconn"
)

// Broker is a [broker.Broker] on hworker's four keys. Create it with [New]. Its methods may be
// called from any goroutine.
type Broker struct {
	cfg     Config
	conn    *redisconn.Conn
	scripts scripts

	life context.Context // ends at Close, and every call with it
	end  context.CancelFunc

	mu         sync.Mutex // guards the fields below
	closed     bool
	subs       map[*subscription]struct{}
	held       map[*delivery]struct{} // claimed and not settled, of all subscriptions
	count      uint64                 // number of deliveries so far
	upkeep     map[string]keys        // queues with a monitor
	upkeepDone chan struct{}          // closed when the monitor has ended; nil before it started
	finished   chan struct{}          // closed when Close is done
}

// The optional interfaces that the four keys support.
var (
	_ broker.Broker         = (*Broker)(nil)
	_ broker.BatchPublisher = (*Broker)(nil)
	_ broker.Retrier        = (*Broker)(nil)
	_ broker.Inspector      = (*Broker)(nil)
	_ broker.DeadLetterer   = (*Broker)(nil)
	_ broker.QueueLister    = (*Broker)(nil)
	_ broker.Lister         = (*Broker)(nil)
	_ broker.Watcher        = (*Broker)(nil)

	_ broker.PrefetchAdviser = (*Broker)(nil)
	_ broker.Resizer         = (*subscription)(nil)
	_ broker.SyncAcker       = (*delivery)(nil)
)

// New returns a Broker, or an error with all problems of cfg. It does not connect before the first
// call that needs the server.
func New(cfg Config) (*Broker, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	conn, err := redisconn.New(redisconn.Config{Redis: cfg.Redis, Logger: cfg.Logger})
	if err != nil {
		return nil, fmt.Errorf("hworkerbroker: %w", err)
	}
	b := &Broker{
		cfg: cfg, conn: conn, scripts: newScripts(),
		subs: make(map[*subscription]struct{}), held: make(map[*delivery]struct{}), upkeep: make(map[string]keys),
		finished: make(chan struct{}),
	}
	b.life, b.end = context.WithCancel(context.Background())
	return b, nil
}

// Subscribe implements [broker.Broker]. Every valid name is a queue. A Prefetch of 0 or less means
// no limit. SubscribeOptions.Lease is ignored: the time that a job may be in progress is the same
// for all workers, [Config.Timeout].
//
// Subscribe reads the queue's size once, to see that the server is reachable and grants access.
// Then it starts a goroutine that claims jobs at once. The first subscription also starts the
// goroutine that renews held jobs and runs the monitor. The monitor returns the jobs of dead
// workers to their queues. Returns ErrMalformed for a name that is not valid, ErrClosed after
// Close, and the error of reading the size. It takes b.mu, but not while it waits.
func (b *Broker) Subscribe(ctx context.Context, queue string, o broker.SubscribeOptions) (broker.Subscription, error) {
	k, err := keysOf(queue)
	if err != nil {
		return nil, err
	}
	if err := broker.RefuseBounds(queue, o); err != nil {
		return nil, fmt.Errorf("hworkerbroker: %w", err)
	}
	// checks that the server is reachable and grants access
	if _, err := b.Stats(ctx, queue); err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil, errClosed
	}
	s := newSubscription(b, k, o.Prefetch)
	b.subs[s] = struct{}{}
	b.upkeep[queue] = k
	if b.upkeepDone == nil {
		b.upkeepDone = make(chan struct{})
		go b.upkeepLoop()
	}
	go s.fetch()
	return s, nil
}

// PrefetchPerWorker implements [broker.PrefetchAdviser]. It returns 1: a worker of hworker holds
// only the job that it runs, so that another worker can claim the next one.
func (b *Broker) PrefetchPerWorker() int { return 1 }

var errClosed = fmt.Errorf("hworker: %w", broker.ErrClosed)

// errIfClosed returns ErrClosed once Close has begun, otherwise nil. It takes b.mu.
func (b *Broker) errIfClosed() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return errClosed
	}
	return nil
}

// Close implements [broker.Broker]. All held jobs go back to the front of their queues, in their
// old order, even those that Receive has returned: their Lost channels are closed. It waits for
// the server and for the Broker's goroutines, without b.mu. If the server cannot be reached, Close
// returns an error, and a monitor returns the jobs later. A second call waits for the first one
// and returns nil, or ctx's error.
func (b *Broker) Close(ctx context.Context) error {
	b.mu.Lock()
	first := !b.closed
	b.closed = true
	subs := make([]*subscription, 0, len(b.subs))
	for s := range b.subs {
		subs = append(subs, s)
	}
	b.mu.Unlock()
	if !first {
		select {
		case <-b.finished:
			return nil
		case <-ctx.Done():
			return fmt.Errorf("hworker close: %w", ctx.Err())
		}
	}
	defer close(b.finished)
	for _, s := range subs {
		s.stopReceiving()
	}
	var errs []error
	for _, s := range subs {
		errs = append(errs, s.Close(ctx))
	}
	errs = append(errs, b.returnAll(ctx))
	b.end()
	if b.upkeepDone != nil {
		<-b.upkeepDone
	}
	for _, d := range b.heldNewestFirst() { // the server could not be reached
		d.markLost()
	}
	errs = append(errs, wrapErr("close", b.conn.Close(ctx)))
	return errors.Join(errs...)
}

// returnAll returns all held jobs to their queues, the newest first, because each goes to the
// front. It waits for the server, and continues after an error. It returns the errors of all
// deliveries joined.
func (b *Broker) returnAll(ctx context.Context) error {
	var errs []error
	for _, d := range b.heldNewestFirst() {
		errs = append(errs, d.returnToQueue(ctx))
	}
	return errors.Join(errs...)
}

// addHeld adds a delivery to the held ones and numbers it. It takes b.mu.
func (b *Broker) addHeld(d *delivery) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.count++
	d.number = b.count
	b.held[d] = struct{}{}
}

// removeHeld removes a delivery from the held ones, and reports whether it was among them. It takes
// b.mu.
func (b *Broker) removeHeld(d *delivery) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	_, ok := b.held[d]
	delete(b.held, d)
	return ok
}

// heldNewestFirst returns the held deliveries, the newest first. It takes b.mu.
func (b *Broker) heldNewestFirst() []*delivery {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.SortedFunc(maps.Keys(b.held), func(x, y *delivery) int { return cmp.Compare(y.number, x.number) })
}

// log writes a report that no call returns to the logger, with the queue's name.
func (b *Broker) log(level slog.Level, queue, msg string, attrs ...slog.Attr) {
	b.cfg.Logger.LogAttrs(context.Background(), level, msg, append(attrs, slog.String("queue", queue))...)
}

// checkInterval returns the interval at which the monitor checks the jobs in progress: a tenth of
// the timeout.
func (b *Broker) checkInterval() time.Duration { return b.cfg.Timeout / checksPerTimeout }

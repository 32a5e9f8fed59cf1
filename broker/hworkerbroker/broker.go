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

// Broker is a [broker.Broker] on hworker's four keys. Make one with [New]. Its methods may be called from any goroutine.
type Broker struct {
	cfg     Config
	conn    *redisconn.Conn
	scripts scripts

	life context.Context // ends at Close, and with it every call
	end  context.CancelFunc

	mu       sync.Mutex // guards all below
	closed   bool
	subs     map[*subscription]struct{}
	held     map[*delivery]struct{} // taken from Redis and not settled, of all subscriptions
	taken    uint64                 // how many there have been
	upkeep   map[string]keys        // the queues whose jobs are looked after
	kept     chan struct{}          // closed when the upkeep has ended; nil before it began
	finished chan struct{}          // closed when Close is through
}

// Whatever else the four keys can give.
var (
	_ broker.Broker         = (*Broker)(nil)
	_ broker.BatchPublisher = (*Broker)(nil)
	_ broker.Retrier        = (*Broker)(nil)
	_ broker.Inspector      = (*Broker)(nil)
	_ broker.DeadLetterer   = (*Broker)(nil)
	_ broker.Watcher        = (*Broker)(nil)

	_ broker.PrefetchAdviser = (*Broker)(nil)
	_ broker.Resizer         = (*subscription)(nil)
	_ broker.SyncAcker       = (*delivery)(nil)
)

// New makes a Broker, or says everything that is wrong with cfg. It connects when it is first used.
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

// Subscribe implements [broker.Broker]. Every name is a queue. SubscribeOptions.Lease is not looked at: how long a job may
// be in progress is the same for everybody, [Config.Timeout]. The first subscription to a queue starts its monitor.
func (b *Broker) Subscribe(ctx context.Context, queue string, o broker.SubscribeOptions) (broker.Subscription, error) {
	k, err := keysOf(queue)
	if err != nil {
		return nil, err
	}
	if _, err := b.Stats(ctx, queue); err != nil { // is the server there, and does it let us in?
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
	if b.kept == nil {
		b.kept = make(chan struct{})
		go b.keepUp()
	}
	go s.fetch()
	return s, nil
}

// PrefetchPerWorker implements [broker.PrefetchAdviser]: a worker of hworker holds the job that it
// works on and no other, so that another one can take the next.
func (b *Broker) PrefetchPerWorker() int { return 1 }

var errClosed = fmt.Errorf("hworker: %w", broker.ErrClosed)

// open reports that the Broker is not closed.
func (b *Broker) open() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return errClosed
	}
	return nil
}

// Close implements [broker.Broker]. What is held goes back to the front of its queue, in its old order; where the server
// cannot be reached a monitor does that later.
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
		s.halt()
	}
	var errs []error
	for _, s := range subs {
		errs = append(errs, s.Close(ctx))
	}
	errs = append(errs, b.giveBack(ctx))
	b.end()
	if b.kept != nil {
		<-b.kept
	}
	for _, d := range b.holding() { // nobody could be told
		d.abandon()
	}
	errs = append(errs, failure("close", b.conn.Close(ctx)))
	return errors.Join(errs...)
}

// giveBack takes every delivery out of its holder's hands, the last one first: each goes in front of those before it.
func (b *Broker) giveBack(ctx context.Context) error {
	var errs []error
	for _, d := range b.holding() {
		errs = append(errs, d.takeBack(ctx))
	}
	return errors.Join(errs...)
}

// hold notes that a delivery is in this process's hands.
func (b *Broker) hold(d *delivery) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.taken++
	d.number = b.taken
	b.held[d] = struct{}{}
}

// drop is the reverse; it reports whether the delivery was noted.
func (b *Broker) drop(d *delivery) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	_, ok := b.held[d]
	delete(b.held, d)
	return ok
}

// holding returns the deliveries in this process's hands, the last one first.
func (b *Broker) holding() []*delivery {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.SortedFunc(maps.Keys(b.held), func(x, y *delivery) int { return cmp.Compare(y.number, x.number) })
}

// log writes what no call returns.
func (b *Broker) log(level slog.Level, queue, msg string, attrs ...slog.Attr) {
	b.cfg.Logger.LogAttrs(context.Background(), level, msg, append(attrs, slog.String("queue", queue))...)
}

// tick is the pace of a monitor's rounds.
func (b *Broker) tick() time.Duration { return b.cfg.Timeout / rounds }

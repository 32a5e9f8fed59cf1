package sqlevents

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/internal/nodeid"
	"github.com/swarmiji/swarmiji/internal/sqlconn"
	"github.com/swarmiji/swarmiji/internal/wake"
)

// Bus publishes and reads events over one database, which it opens at the first use.
// Make one with [New] and end it with Close. All methods are safe for concurrent use.
type Bus struct {
	cfg     Config
	conn    *sqlconn.Conn
	text    *texts
	batcher *events.Batcher
	topic   string // of notifications about new rows
	id      string // of the row of this bus among the listeners
	sweeper sweeper

	demand atomic.Pointer[demand] // nil: not yet known

	life context.Context // of the goroutine that reads; ends with Close
	end  context.CancelFunc
	work sync.WaitGroup

	// registering is held while the row of this bus is written; it guards registered
	registering chan struct{}
	registered  registration

	changed wake.Signal // notified when a listener has ended, and by Close

	mu        sync.Mutex
	closed    bool
	reading   bool      // the goroutine of read exists
	left      time.Time // since then there is no listener; zero: there are some
	listeners map[*listener]struct{}
	replays   map[*replay]struct{}
}

// New checks c and makes a Bus. It does no I/O and starts no goroutine. It returns all problems of
// c in one error.
func New(c Config) (*Bus, error) {
	c, err := c.complete()
	conn, connErr := sqlconn.Of(c.DB, "events")
	if connErr != nil {
		connErr = fmt.Errorf("sqlevents: %w", connErr)
	}
	if err = errors.Join(err, connErr); err != nil {
		return nil, err
	}
	b := &Bus{
		cfg:         c,
		conn:        conn,
		text:        newTexts(conn.Dialect()),
		topic:       "events " + c.Namespace,
		id:          nodeid.New(),
		registering: make(chan struct{}, 1),
		changed:     wake.New(),
		listeners:   make(map[*listener]struct{}),
		replays:     make(map[*replay]struct{}),
	}
	b.life, b.end = context.WithCancel(context.Background())
	b.batcher = events.NewBatcher(b.send, c.Batch)
	return b, nil
}

// Publish implements [events.EventBus]: it calls PublishNow and ignores its context.
func (b *Bus) Publish(_ context.Context, e events.Event) error { return b.PublishNow(e) }

// PublishNow implements [events.PromptPublisher]: it queues e in the Batcher, which may drop the
// oldest waiting event, and never blocks. It drops e, without a count, if the type is not kept and
// no listener wanted it a moment ago. Returns ErrClosed after Close.
func (b *Bus) PublishNow(e events.Event) error {
	if !b.cfg.Retain.Keeps(e.Type) && !b.batcher.Closed() {
		if d := b.demand.Load(); d != nil && d.fresh() && !d.wants(e.Type) {
			return nil
		}
	}
	return b.batcher.Add(e)
}

// Dropped implements [events.DropCounter]. It counts events published on this bus that were
// dropped: more than Batch.Capacity waited, the database could not be reached or gave no answer, or
// the event could not be encoded.
func (b *Bus) Dropped() uint64 { return b.batcher.Dropped() }

// closeTimeout limits the wait for the goroutine that reads, which removes the row of this bus.
const closeTimeout = 2 * time.Second

// Close implements [events.EventBus]. It sends the waiting events, then ends the subscriptions,
// whose unread events are dropped. After nil the database has all events.
//
// If ctx ends first it drops the rest and returns ctx's error. An unreachable database delays Close
// by up to Batch.SendTimeout and two seconds. It takes b.mu, but not while it waits.
func (b *Bus) Close(ctx context.Context) error {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	sent := b.batcher.Close(ctx)
	b.mu.Lock()
	listeners, replays := slices.Collect(maps.Keys(b.listeners)), slices.Collect(maps.Keys(b.replays))
	b.mu.Unlock()
	for _, l := range listeners {
		l.finish()
	}
	for _, r := range replays {
		r.finish()
	}
	b.changed.Notify()
	ended := make(chan struct{})
	go func() {
		b.work.Wait()
		close(ended)
	}()
	t := time.NewTimer(closeTimeout)
	defer t.Stop()
	select {
	case <-ended:
	case <-t.C:
	case <-ctx.Done():
	}
	b.end()
	return errors.Join(sent, failure("close", b.conn.Close(ctx)))
}

// ready makes or updates the tables and waits for the database. After a success further calls
// return nil at once. After an error the next call tries again.
func (b *Bus) ready(ctx context.Context) error { return b.conn.Ready(ctx) }

// view makes the tables and runs fn, which only reads. It waits for the database and returns its
// errors and those of fn.
func (b *Bus) view(ctx context.Context, fn sqlconn.Func) error {
	if err := b.ready(ctx); err != nil {
		return err
	}
	return b.conn.View(ctx, fn)
}

// lockKey returns the number of the advisory lock of a namespace. Two namespaces may have the same
// number: their publishers then wait for each other.
func lockKey(namespace string) int64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte("swarmiji events " + namespace)) // it never fails
	return int64(h.Sum64())
}

// failure wraps err with the matching error of the port and the name of the operation: ErrClosed
// if the bus is closed, otherwise ErrUnavailable. It returns nil for nil.
func failure(what string, err error) error {
	if err == nil {
		return nil
	}
	class := events.ErrUnavailable
	if errors.Is(err, sqlconn.ErrClosed) {
		class = events.ErrClosed
	}
	return fmt.Errorf("sql %s: %w: %w", what, class, err)
}

var (
	_ events.EventBus        = (*Bus)(nil)
	_ events.Retainer        = (*Bus)(nil)
	_ events.RetentionTeller = (*Bus)(nil)
	_ events.DropCounter     = (*Bus)(nil)
	_ events.PromptPublisher = (*Bus)(nil)
	_ events.Subscription    = (*listener)(nil)
	_ events.DropCounter     = (*listener)(nil)
	_ events.Subscription    = (*replay)(nil)
	_ events.DropCounter     = (*replay)(nil)
)

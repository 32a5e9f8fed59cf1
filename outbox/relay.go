package outbox

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/middleware"
)

// DefaultLease is the default of Lease in [Config].
const DefaultLease = 30 * time.Second

// minLease keeps the waits that are parts of a lease above the time of a round trip.
const minLease = 300 * time.Millisecond

// Config holds the settings of a [Relay]. Store and Broker are required.
type Config struct {
	// Store is the outbox: a *sqloutbox.Store.
	Store Store
	// Broker receives the messages.
	Broker broker.Broker
	// Queues are declared before the first publish. Messages of another queue wait until it exists.
	Queues []broker.Queue
	// Lease is the time after which other relays take over from one that does not renew. All relays of
	// an outbox use the same. A publish ends after two thirds of it. Default: 30 s. Minimum: 300 ms.
	Lease time.Duration
	// Metrics counts the messages that this relay sends. With it the relay also counts the messages of
	// the outbox, every 15 seconds, so that an operator sees messages that are not sent. nil: it does
	// neither.
	Metrics *middleware.Metrics
	// Logger receives reports about interruptions and about messages that fail. Default:
	// slog.Default().
	Logger *slog.Logger
}

// Relay publishes the messages of an outbox. Safe for concurrent use.
type Relay struct{ cfg Config }

// New returns a Relay for c, whose defaults it sets. It does no I/O. Returns all problems of the
// configuration as one joined error.
func New(c Config) (*Relay, error) {
	var errs []error
	if c.Store == nil {
		errs = append(errs, errors.New("outbox: Store is not set"))
	}
	if c.Broker == nil {
		errs = append(errs, errors.New("outbox: Broker is not set"))
	}
	if c.Lease = cmp.Or(c.Lease, DefaultLease); c.Lease < minLease {
		errs = append(errs, fmt.Errorf("outbox: Lease %v is shorter than %v", c.Lease, minLease))
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return &Relay{c}, nil
}

// Run publishes messages until ctx ends. While the database or the broker cannot be reached, it
// tries again.
//
// When ctx ends, it finishes the publish in progress, deletes confirmed messages, and releases its
// buckets. Each of these steps takes up to 5 s. Then it returns nil. Returns [broker.ErrClosed] if
// the broker or the store was closed. Several calls, in one process or many, share the messages.
func (r *Relay) Run(ctx context.Context) error {
	s := &session{Config: r.cfg, name: rand.Text(), idle: minIdle}
	if r.cfg.Metrics == nil {
		s.Metrics = new(middleware.Metrics)
	} else {
		looking, stop := context.WithCancel(ctx)
		var looks sync.WaitGroup
		looks.Go(func() { r.cfg.look(looking) })
		defer looks.Wait()
		defer stop()
	}
	changed, unwatch := r.cfg.Store.Watch()
	defer unwatch()
	err := s.run(ctx, changed)
	if leaveErr := s.leave(ctx); leaveErr != nil {
		s.Logger.WarnContext(ctx, "outbox: a relay could not release its messages; others send them when its lease ends", "error", leaveErr)
	}
	return err
}

// stepTime limits each step after the end of Run's ctx, and each change of the store.
const stepTime = 5 * time.Second

// lasting returns a context that survives the end of ctx for stepTime, and ends at the deadline at
// the latest. Call stop to release it.
func lasting(ctx context.Context, deadline time.Time) (_ context.Context, stop func()) {
	late, cancel := context.WithDeadline(context.WithoutCancel(ctx), deadline)
	unhook := context.AfterFunc(ctx, func() { time.AfterFunc(stepTime, cancel) })
	return late, func() {
		unhook()
		cancel()
	}
}

// Package eventsettings stores settings as retained events on a bus, for brokers without a store
// such as RabbitMQ. Each process reads the retained events and keeps a copy of all values.
//
// # Weaker promises
//
// The other stores of package settings are stronger. Use one of them if the system has such a
// server.
//
//   - Two processes that change one value at the same time may both succeed. The change with the
//     higher revision stays; of the same revision, that of the node whose id is greater.
//   - A process reads its own copy. After a change by another process the copy is old until the
//     event has come, and while the connection is lost.
//   - The bus retains an event for a limited time, see [Retention]. Each process with a store
//     writes the values again at half of that time. If no process runs for the whole time, the
//     values are lost. A process that was cut off for that long may bring back a deleted value.
//   - A bus that removes the oldest events to save space may remove values.
package eventsettings

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/swarmiji/swarmiji/capability"
	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/internal/naming"
	"github.com/swarmiji/swarmiji/internal/nodeid"
	"github.com/swarmiji/swarmiji/settings"
)

// MaxKeys is the largest number of values.
const MaxKeys = 1000

// DefaultAge is the time for which the bus of [Retention] retains a value that no process renews.
const DefaultAge = 30 * 24 * time.Hour

// eventType is the type of the events. It is part of the wire format.
const eventType = "setting"

// Retention returns the retention that a bus needs for settings. All nodes must use the same one.
func Retention() events.Retention {
	return events.Retention{Age: DefaultAge, Types: []string{eventType}}
}

// Config configures a [Store]. Only Events must be set.
type Config struct {
	// Events is a bus with [Retention], and for settings alone. The store does not close it.
	Events events.EventBus
	// NodeID names this process in the events. Two running processes must not have the same id.
	// Default: a new id.
	NodeID string
	// Age is the retention of the bus, if the bus does not tell it ([events.RetentionTeller]).
	// Default: [DefaultAge], 30 days.
	Age time.Duration
	// Logger gets a warning while the bus cannot be read. Default: slog.Default().
	Logger *slog.Logger
}

// New returns a Store. It does no I/O and starts nothing: the first call does so. Its error joins
// all problems of the configuration.
func New(c Config) (*Store, error) {
	var errs []error
	keeper, ok := capability.As[events.Retainer](c.Events)
	if !ok {
		errs = append(errs, errors.New("eventsettings: Events is not set, or retains no events"))
	}
	if teller, ok := capability.As[events.RetentionTeller](c.Events); ok {
		r := teller.Retention()
		if !r.Keeps(eventType) {
			errs = append(errs, errors.New("eventsettings: the bus does not retain settings; configure it with Retention"))
		}
		c.Age = r.Age
	}
	c.Age = cmp.Or(c.Age, DefaultAge)
	c.NodeID = cmp.Or(c.NodeID, nodeid.New())
	if !naming.ValidName(c.NodeID) {
		errs = append(errs, fmt.Errorf("eventsettings: NodeID %q is invalid", c.NodeID))
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	s := &Store{
		cfg: c, keeper: keeper, values: make(map[string]*entry), waiting: make(map[string]chan struct{}),
		watches: make(map[*func()]struct{}), loaded: make(chan struct{}), tried: make(map[string]uint64), changing: make(chan struct{}, 1),
	}
	s.life, s.end = context.WithCancel(context.Background())
	return s, nil
}

var _ settings.Store = (*Store)(nil)

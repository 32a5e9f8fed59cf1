package revoke

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/capability"
	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/internal/nodeid"
	"github.com/swarmiji/swarmiji/internal/wire"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/serializer"
	"github.com/swarmiji/swarmiji/task"
)

// Errors of a [Revoker].
var (
	// ErrUnconfirmed: ctx ended before the bus had confirmed the whole revocation. Calling again is
	// safe.
	ErrUnconfirmed = errors.New("revoke: the revocation is not known to be stored")
	// ErrTooLong: the bus does not store events for as long as the revocation must last.
	ErrTooLong = errors.New("revoke: the bus keeps events for a shorter time")
)

// DefaultTimeout limits a revocation whose context has no deadline.
const DefaultTimeout = 10 * time.Second

// window is the number of events that are published before their confirmations are read. A bus
// drops the oldest events of a longer backlog.
const window = 1000

// lookBack is the age of the oldest events that a Revoker reads. It needs only its own new events,
// but clocks differ.
const lookBack = time.Hour

// Outcome is the result of revoking one task.
type Outcome string

const (
	// Noted means that consumers will not start the task.
	Noted Outcome = "noted"
	// Removed means that its message was also removed from the queue and its end recorded.
	Removed Outcome = "removed"
)

// RevokerConfig configures a [Revoker]. Only Events must be set. The Revoker closes none of them.
type RevokerConfig struct {
	// Events is the bus of the revocations, the same as that of the lists.
	Events events.EventBus
	// Live accepts a bus that stores no events, see [Config].
	Live bool
	// Broker finds and removes the messages of tasks that are revoked by id, if it is a
	// [broker.Finder]; see [Revoker.Revoke]. nil: messages stay until a consumer receives and settles
	// them.
	Broker broker.Broker
	// Queues are the queues in which messages are searched.
	Queues []string
	// Results and Stores are the result stores of the consumers. The end of a removed task is recorded
	// there. If a task's store is missing here, its message is not removed.
	Results resultstore.ResultStore
	Stores  map[string]resultstore.ResultStore
	// Tasks gets a task-revoked event for each removed task. nil: no events.
	Tasks events.EventBus
	// NodeID is the name of this process in events and records. Default: made of the host name, the
	// process id and random characters.
	NodeID string
	// Logger gets errors that no method returns. Default: slog.Default().
	Logger *slog.Logger
}

// Options are options of a revocation. The zero value is valid.
type Options struct {
	// Until is the last moment at which the task may start, for example its expiry. The revocation is
	// stored for [Keep] longer. Default: [DefaultUntil] from now, or from the due time of a delayed
	// task that is found in its queue.
	Until time.Time
	// Terminate cancels the contexts of running tasks with cause [task.ErrRevoked]. If the handler
	// then returns an error, the task is revoked; if it returns a result, the task has succeeded.
	// Default: false, running tasks continue.
	Terminate bool
}

// Revoker revokes tasks. Make one with [NewRevoker]. Safe for concurrent use.
type Revoker struct {
	cfg    RevokerConfig
	codec  *wire.Codec
	finder broker.Finder // nil: the broker is not a Finder
}

// NewRevoker returns a Revoker. Its error joins all problems of the configuration. It does no I/O.
func NewRevoker(c RevokerConfig) (*Revoker, error) {
	var errs []error
	if c.Events == nil {
		errs = append(errs, errors.New("revoke: Events is not set"))
	} else if err := checkBus(c.Events, c.Live); err != nil {
		errs = append(errs, err)
	}
	for _, q := range c.Queues {
		if err := task.CheckName(q); err != nil {
			errs = append(errs, fmt.Errorf("revoke: Queues: %w", err))
		}
	}
	codec, err := wire.New(serializer.Wire{})
	if err := errors.Join(append(errs, err)...); err != nil {
		return nil, err
	}
	if c.NodeID == "" {
		c.NodeID = nodeid.New()
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	r := &Revoker{cfg: c, codec: codec}
	r.finder, _ = capability.As[broker.Finder](c.Broker)
	return r, nil
}

// Revoke revokes tasks by their ids, including tasks that are submitted later. It returns an
// outcome for each id. Without ids it does nothing.
//
// A nil error means that the bus has stored the revocation. Running consumers receive it, usually
// within milliseconds. Consumers that start later know it before their first task. Unless all
// messages were removed, a nil error also means that at least one running consumer listens.
//
// If the broker finds a message, and the task has no successors, group or sealed data, Revoke
// removes the message and records the end. Otherwise the next consumer settles the message; if it
// is delayed, Revoke makes it due.
//
// Returns [task.ErrBadID], [ErrTooLong], [ErrUnconfirmed] and errors of the bus without outcomes.
// After [ErrUnheard], which takes 3 s, and errors of a removal, the tasks are revoked, and the
// outcomes are valid. Without a deadline in ctx it takes at most [DefaultTimeout].
func (r *Revoker) Revoke(ctx context.Context, o Options, ids ...task.ID) ([]Outcome, error) {
	for _, id := range ids {
		if err := id.Check(); err != nil {
			return nil, err
		}
	}
	if len(ids) == 0 {
		return nil, nil
	}
	ctx, cancel := bound(ctx)
	defer cancel()
	found := r.find(ctx, ids)
	if o.Until.IsZero() {
		o.Until = time.Now()
		for _, w := range found {
			if w.out.At.After(o.Until) {
				o.Until = w.out.At
			}
		}
		o.Until = o.Until.Add(DefaultUntil)
	}
	if err := r.store(ctx, revocations(o, ids)); err != nil {
		return nil, err
	}
	outcomes, err := r.remove(ctx, ids, found)
	if slices.Contains(outcomes, Noted) {
		err = errors.Join(err, r.heard(ctx))
	}
	return outcomes, err
}

// RevokeMatching revokes the tasks that a selector chooses, and blocks until the bus has stored
// that and a consumer has answered. A nil error, [ErrUnheard] and the other errors have the same
// meaning as for [Revoker.Revoke]. Messages stay until a consumer receives them. Returns
// [ErrBadSelector] for an invalid selector. Without a deadline in ctx it takes at most
// [DefaultTimeout].
func (r *Revoker) RevokeMatching(ctx context.Context, o Options, s Selector) error {
	if err := s.Check(); err != nil {
		return err
	}
	if o.Until.IsZero() {
		o.Until = time.Now().Add(DefaultUntil)
	}
	ctx, cancel := bound(ctx)
	defer cancel()
	if err := r.store(ctx, []Revocation{{Selector: s, Until: o.Until, Terminate: o.Terminate}}); err != nil {
		return err
	}
	return r.heard(ctx)
}

// bound returns ctx with DefaultTimeout if ctx has no deadline. Call the returned function to
// release the context.
func bound(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, DefaultTimeout)
}

// revocations returns the revocations of ids until o.Until, each with at most [MaxIDs] ids.
func revocations(o Options, ids []task.ID) []Revocation {
	var vs []Revocation
	for some := range slices.Chunk(ids, MaxIDs) {
		vs = append(vs, Revocation{IDs: some, Until: o.Until, Terminate: o.Terminate})
	}
	return vs
}

// store publishes revocations and blocks until the bus has stored them all. Returns [ErrTooLong]
// before it publishes anything, if the bus stores events for too short a time. Returns
// [ErrUnconfirmed] if ctx ends first: some may be stored. Also returns errors of the bus. vs must
// not be empty.
func (r *Revoker) store(ctx context.Context, vs []Revocation) error {
	if keep, ok := retention(r.cfg.Events); ok && !r.cfg.Live {
		if need := time.Until(vs[0].Until) + Keep; need > keep.Age {
			return fmt.Errorf("%w: it keeps them for %v, but %v is needed; set a longer Age for all nodes", ErrTooLong, keep.Age, need.Round(time.Second))
		}
	}
	read, err := openReader(ctx, r.cfg.Events, r.cfg.Live, time.Now().Add(-lookBack))
	if err != nil {
		return err
	}
	defer read.close()
	for some := range slices.Chunk(vs, window) {
		for i := range some {
			if err := read.publish(ctx, some[i].event(r.cfg.NodeID)); err != nil {
				return err
			}
		}
		if err := read.finish(ctx, nil); err != nil {
			if ctx.Err() != nil {
				err = fmt.Errorf("%w: %d events are not confirmed: %w", ErrUnconfirmed, len(read.unseen), err)
			}
			return err
		}
	}
	return nil
}

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
	// ErrUnconfirmed: the bus has not confirmed all of the revocation before ctx ended. Revoking again is safe.
	ErrUnconfirmed = errors.New("revoke: the revocation is not known to be stored")
	// ErrTooLong: the bus does not keep events for as long as the revocation has to live.
	ErrTooLong = errors.New("revoke: the bus keeps events for a shorter time")
)

// DefaultTimeout bounds a revocation whose context has no deadline.
const DefaultTimeout = 10 * time.Second

// window is how many events are published before they are looked for: a bus drops the oldest of those that wait.
const window = 1000

// lookBack is where a Revoker begins to read. Only what it publishes is looked for, and clocks differ.
const lookBack = time.Hour

// Outcome is what became of one task's revocation.
type Outcome string

const (
	// Noted means that consumers will not start the task.
	Noted Outcome = "noted"
	// Removed means that, besides, its message was taken out of the queue and its end recorded.
	Removed Outcome = "removed"
)

// RevokerConfig configures a [Revoker]. Only Events must be set. Nothing of it is closed by the Revoker.
type RevokerConfig struct {
	// Events is the bus of the revocations, the same as that of the lists.
	Events events.EventBus
	// Live takes a bus that keeps nothing, see [Config].
	Live bool
	// Broker, where it is a [broker.Finder], is asked for the messages of tasks that are revoked by id, see
	// [Revoker.Revoke]. nil: messages stay where they are, until a consumer takes and settles them.
	Broker broker.Broker
	// Queues are those in which messages are looked for. nil: none.
	Queues []string
	// Results and Stores record the end of what is removed, as those of the consumers do. Where the store of a task is not
	// among them its message stays.
	Results resultstore.ResultStore
	Stores  map[string]resultstore.ResultStore
	// Tasks gets the events task-revoked of what is removed. nil: none are sent.
	Tasks events.EventBus
	// NodeID names this process in events and records. "": made of host, process and chance.
	NodeID string
	// Logger gets what nobody is returned. nil: slog.Default().
	Logger *slog.Logger
}

// Options of a revocation. The zero value is usable.
type Options struct {
	// Until is the last moment at which the task may start, such as its expiry. The revocation lives for [Keep] longer.
	// Zero: [DefaultUntil] from now, and for a delayed task that is found in its queue from its time.
	Until time.Time
	// Terminate cancels the contexts of such tasks that run, with cause [task.ErrRevoked]; handlers have to heed it. A task
	// whose handler then returns an error is revoked, one that returns a result has succeeded. False: what runs may finish.
	Terminate bool
}

// Revoker revokes tasks. Safe for concurrent use.
type Revoker struct {
	cfg    RevokerConfig
	codec  *wire.Codec
	finder broker.Finder // nil: none
}

// NewRevoker checks c and makes a Revoker, or returns all its problems. It does no I/O.
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

// Revoke revokes tasks by their ids, known or still to be submitted. Nil means that the bus has
// stored it: consumers that are started from then on know it before their first task, and those
// that run hear of it as soon as the bus carries it to them, most often within milliseconds. It
// returns for each id what became of it, also beside an error about the removal of some, and beside
// [ErrUnheard], which takes 3 s to find out: they are revoked even so. Its other errors are
// [task.ErrBadID], [ErrTooLong], [ErrUnconfirmed] and the bus's.
//
// A message that the broker finds is removed, and the task's end recorded here, if nothing follows the task. One with
// successors, of a group, or sealed, is left to the next consumer, which has to see to them; one that is delayed is made
// due, so that this is soon.
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

// RevokeMatching revokes the tasks that a selector chooses. Nil and [ErrUnheard] mean what they do
// in [Revoker.Revoke]. Messages stay until a consumer takes them.
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

func bound(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, DefaultTimeout)
}

// revocations are the events that revoke ids until o.Until.
func revocations(o Options, ids []task.ID) []Revocation {
	var vs []Revocation
	for some := range slices.Chunk(ids, MaxIDs) {
		vs = append(vs, Revocation{IDs: some, Until: o.Until, Terminate: o.Terminate})
	}
	return vs
}

// store publishes revocations, and returns when all have come back from what the bus keeps.
func (r *Revoker) store(ctx context.Context, vs []Revocation) error {
	if keep, ok := retention(r.cfg.Events); ok && !r.cfg.Live {
		if need := time.Until(vs[0].Until) + Keep; need > keep.Age {
			return fmt.Errorf("%w: it keeps them for %v, and %v are needed; configure a longer Age for all nodes", ErrTooLong, keep.Age, need.Round(time.Second))
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
				err = fmt.Errorf("%w: %d of its events have not come back: %w", ErrUnconfirmed, len(read.unseen), err)
			}
			return err
		}
	}
	return nil
}

// Package deadletter finds tasks that failed for good, shows why, runs them again, drops them, and
// keeps them in files. The program swarmiji uses the same methods.
//
// A dead letter is the message as it was, with the reason. [Letters.Requeue] gives it a new life:
// its counters begin again, its record may go on to succeed, the steps that were skipped because it
// failed run, and what an attempt of the old life still writes is refused. All methods work on any
// number of letters, in bounded memory, the oldest first.
package deadletter

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/capability"
	"github.com/swarmiji/swarmiji/internal/nodeid"
	"github.com/swarmiji/swarmiji/internal/wire"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/serializer"
	"github.com/swarmiji/swarmiji/task"
)

// DefaultTimeout bounds what is done with one letter, where the context has no deadline.
const DefaultTimeout = 10 * time.Second

// Config configures [New]. Only Broker must be set. Nothing of it is closed by the Letters.
type Config struct {
	// Broker holds the dead letters: it is a [broker.DeadLetterer].
	Broker broker.Broker
	// Results is the store of the tasks' results, as consumers have it. nil: only for consumers
	// that keep no records. Otherwise no record is reopened: a task that is requeued runs, its
	// success is refused, and its letter comes back with the old reason.
	Results resultstore.ResultStore
	// Stores are further stores, by the name that a task's ResultStore metadata gives.
	Stores map[string]resultstore.ResultStore
	// Gatherer knows the groups. nil: Results, if it is a Gatherer.
	Gatherer resultstore.Gatherer
	// Wire is how letters are read: as the consumers have it. Without its Sealer and Compression,
	// arguments that are sealed or compressed are not shown; Requeue needs neither. QueueFormats,
	// AcceptPlain and MaxBody are ignored: nothing is written, and every letter is read.
	Wire serializer.Wire
	// NodeID names this process in records. "": made of host, process and chance.
	NodeID string
}

// maxBody is more than any broker carries: a letter was a message already.
const maxBody = 1 << 30

// Letters are the dead letters of a broker. Safe for concurrent use; a broker may allow one scan of
// a queue at a time.
type Letters struct {
	cfg    Config
	dead   broker.DeadLetterer
	codec  *wire.Codec
	gather resultstore.Gatherer // nil: none
}

// New checks c and returns its dead letters, or all problems of c. It does no I/O. A broker whose
// dead letters cannot be read is [broker.ErrUnsupported].
func New(c Config) (*Letters, error) {
	var errs []error
	dead, ok := capability.As[broker.DeadLetterer](c.Broker)
	switch {
	case c.Broker == nil:
		errs = append(errs, errors.New("deadletter: Broker is not set"))
	case !ok:
		errs = append(errs, fmt.Errorf("deadletter: the dead letters of this broker cannot be read: %w", broker.ErrUnsupported))
	}
	w := c.Wire
	w.QueueFormats, w.AcceptPlain, w.MaxBody = nil, true, maxBody
	codec, err := wire.New(w)
	if err != nil {
		errs = append(errs, fmt.Errorf("deadletter: %w", err))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	if c.NodeID == "" {
		c.NodeID = nodeid.New()
	}
	return &Letters{cfg: c, dead: dead, codec: codec, gather: resultstore.GathererOf(c.Gatherer, c.Results)}, nil
}

// List calls fn for each letter of a queue that f takes, until fn returns false. The letters stay
// where they are. fn must not change them, and must not scan the same queue.
//
// Returns [ErrFilter] for an invalid filter, [task.ErrBadName] for a bad queue, and the broker's
// errors, such as [broker.ErrNoQueue].
func (l *Letters) List(ctx context.Context, queue string, f Filter, fn func(*Letter) bool) error {
	return l.scan(ctx, queue, f, func(letter *Letter) (broker.DeadAction, error) {
		if !fn(letter) {
			return broker.DeadStop, nil
		}
		return broker.DeadKeep, nil
	})
}

// Drop removes the letters of a queue that f takes, for ever, and returns their number. Its errors
// are those of [Letters.List]. After an error some of the counted letters may be there still.
func (l *Letters) Drop(ctx context.Context, queue string, f Filter) (n int, err error) {
	if f.all() {
		if err := task.CheckName(queue); err != nil {
			return 0, err
		}
		return l.dead.PurgeDead(ctx, queue)
	}
	err = l.scan(ctx, queue, f, func(*Letter) (broker.DeadAction, error) {
		n++
		return broker.DeadRemove, nil
	})
	return n, err
}

// scan shows the letters that f takes to fn, until fn returns an error or DeadStop.
func (l *Letters) scan(ctx context.Context, queue string, f Filter, fn func(*Letter) (broker.DeadAction, error)) error {
	m, err := f.matcher(time.Now())
	if err == nil {
		err = task.CheckName(queue)
	}
	if err != nil {
		return err
	}
	taken := 0
	var failed error
	err = l.dead.ScanDead(ctx, queue, func(d *broker.Dead) broker.DeadAction {
		if f.Limit > 0 && taken == f.Limit {
			return broker.DeadStop
		}
		if !m.early(d) {
			return broker.DeadKeep
		}
		letter := l.read(d)
		if !m.late(letter) {
			return broker.DeadKeep
		}
		taken++
		action, err := fn(letter)
		if err != nil {
			failed = err
			return broker.DeadStop
		}
		if action == broker.DeadKeep && taken == f.Limit { // no further letter is fetched
			return broker.DeadStop
		}
		return action
	})
	return errors.Join(failed, err)
}

// perLetter bounds what is done with one letter.
func perLetter(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, DefaultTimeout)
}

// Package deadletter counts, lists, requeues, removes, exports and imports dead letters: the
// messages of tasks that failed for good. The program swarmiji uses the same methods.
//
// A dead letter is the unchanged message with the reason of the failure. [Letters.Requeue] begins a
// new life of the task: its counts begin again, its record may be replaced by a success, and the
// steps that were skipped run. Attempts of the old life can no longer change the record. All
// methods handle any number of letters in bounded memory, the oldest first.
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

// DefaultTimeout limits the work on one letter if the context has no deadline.
const DefaultTimeout = 10 * time.Second

// Config configures [New]. Only Broker is required. Letters does not close the broker and stores.
type Config struct {
	// Broker holds the dead letters. It must be a [broker.DeadLetterer].
	Broker broker.Broker
	// Results is the result store of the consumers. nil is correct only if the consumers keep no
	// records. Otherwise no record is reopened: a requeued task runs, its success is refused, and its
	// letter comes back with the old reason.
	Results resultstore.ResultStore
	// Stores are further result stores. A task chooses one by the name in its ResultStore metadata.
	Stores map[string]resultstore.ResultStore
	// Gatherer knows the groups. nil: Results, if it is a [resultstore.Gatherer].
	Gatherer resultstore.Gatherer
	// Wire configures how letters are decoded. Use the same values as the consumers. Without its
	// Sealer and Compression, sealed or compressed arguments are not shown; Requeue needs neither.
	// QueueFormats, AcceptPlain and MaxBody are ignored, since every letter is read and none is
	// encoded.
	Wire serializer.Wire
	// Revoked reports whether a task of a queue is revoked, such as the method Check of a revoke.List
	// that is ready. A revoked task would not run, so its letter is refused and stays. nil: letters of
	// revoked tasks are requeued, end as revoked, and are gone.
	Revoked func(ctx context.Context, queue string, e *task.Envelope) (bool, error)
	// NodeID is the name of this process in records. Default: made from host, process and a random
	// number.
	NodeID string
}

// maxBody is larger than any message of a broker.
const maxBody = 1 << 30

// Letters gives access to the dead letters of a broker. Safe for concurrent use. A broker may allow
// only one scan of a queue at a time.
type Letters struct {
	cfg    Config
	dead   broker.DeadLetterer
	finder broker.DeadFinder // nil: a letter is found by a scan
	codec  *wire.Codec
	gather resultstore.Gatherer // nil: no gatherer
}

// New returns the Letters for c. It does no I/O. Returns all problems of c, joined, and
// [broker.ErrUnsupported] if the broker's dead letters cannot be read.
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
	finder, _ := capability.As[broker.DeadFinder](c.Broker)
	return &Letters{cfg: c, dead: dead, finder: finder, codec: codec, gather: resultstore.GathererOf(c.Gatherer, c.Results)}, nil
}

// List calls fn for each letter of a queue that matches f, until fn returns false. The letters
// stay. fn must not change them, and must not scan the same queue.
//
// Returns [ErrFilter] for an invalid filter, [task.ErrBadName] for a malformed queue, and the
// broker's errors, such as [broker.ErrNoQueue].
func (l *Letters) List(ctx context.Context, queue string, f Filter, fn func(*Letter) bool) error {
	return l.scan(ctx, queue, f, func(letter *Letter) (broker.DeadAction, error) {
		if !fn(letter) {
			return broker.DeadStop, nil
		}
		return broker.DeadKeep, nil
	})
}

// Drop deletes the letters of a queue that match f and returns their number. Returns the errors of
// [Letters.List]. After an error some of the counted letters may still exist.
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

// scan calls fn for the letters that match f, until fn returns an error or DeadStop. fn decides
// whether a letter is kept or removed.
func (l *Letters) scan(ctx context.Context, queue string, f Filter, fn func(*Letter) (broker.DeadAction, error)) error {
	m, err := f.matcher(time.Now())
	if err == nil {
		err = task.CheckName(queue)
	}
	if err != nil {
		return err
	}
	taken, found := 0, false
	var failed error
	show := func(d *broker.Dead) broker.DeadAction {
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
		taken, found = taken+1, true
		action, err := fn(letter)
		if err != nil {
			failed = err
			return broker.DeadStop
		}
		if action == broker.DeadKeep && taken == f.Limit { // do not fetch another letter
			return broker.DeadStop
		}
		return action
	}
	if l.finder != nil && len(f.IDs) == 1 {
		err = l.finder.ScanDeadID(ctx, queue, string(f.IDs[0]), show)
	}
	if err == nil && !found { // the id of a foreign task may differ from that of its message
		err = l.dead.ScanDead(ctx, queue, show)
	}
	return errors.Join(failed, err)
}

// perLetter limits ctx to DefaultTimeout if it has no deadline.
func perLetter(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, DefaultTimeout)
}

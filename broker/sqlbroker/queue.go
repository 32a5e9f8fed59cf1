package sqlbroker

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/naming"
	"github.com/swarmiji/swarmiji/internal/sqlconn"
)

// maxLevels limits the priority levels of a queue.
const maxLevels = 64

// queue is a queue that exists in the database. Its id and levels never change. The id of a fair
// queue is negative: the table of other messages refuses it, so a process of a version without fair
// queues can store nothing there.
type queue struct {
	id     int64
	text   *texts      // of the table with its messages
	turns  *turnState  // of a fair queue
	inUse  atomic.Bool // consumers of a fair queue have used bounds
	name   string
	topic  string // consumers are notified of it
	levels string // as stored
	bounds []int

	warned sync.Once
	dead   deadCount
}

// checkName returns ErrMalformed if the queue name is not valid.
func checkName(name string) error {
	if naming.ValidName(name) {
		return nil
	}
	return fmt.Errorf("sql queue %.128q: %w: not a valid queue name", name, broker.ErrMalformed)
}

// levelOf returns the index of the level for a priority: the first one whose bound is at least
// priority, otherwise the last.
func (q *queue) levelOf(priority int) int {
	for i, bound := range q.bounds {
		if priority <= bound {
			return i
		}
	}
	return max(0, len(q.bounds)-1)
}

// count returns the number of levels, at least 1.
func (q *queue) count() int { return max(1, len(q.bounds)) }

// queue returns a queue that exists in the database. It waits for the database unless the queue is
// in b.queues. Returns ErrNoQueue if the queue does not exist, ErrMalformed if the name is not
// valid, ErrClosed after Close.
func (b *Broker) queue(ctx context.Context, name string) (*queue, error) {
	if err := b.checkOpen(name); err != nil {
		return nil, err
	}
	if q, ok := b.queues.Load(name); ok {
		return q.(*queue), nil //nolint:forcetypeassert // nothing else is in it
	}
	return b.readQueue(ctx, name)
}

// readQueue reads a queue from the database and stores it in b.queues, unless another call was
// faster. It returns the stored one. name must be valid. It waits for the database. Returns
// ErrNoQueue if the queue does not exist, and errors of the database.
func (b *Broker) readQueue(ctx context.Context, name string) (*queue, error) {
	q := &queue{name: name, topic: "broker " + b.cfg.Namespace + "." + name}
	err := b.view(ctx, func(ctx context.Context, tx *sqlconn.Tx) error {
		return tx.Row(ctx, b.text.queue, b.cfg.Namespace, name).Scan(&q.id, &q.levels)
	})
	if errors.Is(err, sqlconn.ErrNoRows) {
		err = broker.ErrNoQueue
	}
	if err != nil {
		return nil, err
	}
	q.text = b.text
	if q.id < 0 {
		if err := b.readyFair(ctx); err != nil {
			return nil, err
		}
		q.text = b.fairText
	}
	q.bounds = parseLevels(q.levels)
	if q.text.fair {
		q.turns = newTurnState(q.count())
	}
	got, _ := b.queues.LoadOrStore(name, q)
	return got.(*queue), nil //nolint:forcetypeassert // nothing else is in it
}

// ensure returns the queue, and creates it, with the given levels and fair or not, if it does not
// exist. An existing queue stays as it is. It always waits for the database. Its errors are those
// of queue and of the database.
func (b *Broker) ensure(ctx context.Context, name, levels string, fair bool) (*queue, error) {
	if err := b.checkOpen(name); err != nil {
		return nil, err
	}
	add := b.text.addQueue
	if fair {
		add = b.fairText.addQueue
	}
	for attempt := 0; ; attempt++ {
		q, err := b.readQueue(ctx, name)
		if !errors.Is(err, broker.ErrNoQueue) {
			return q, err
		}
		// Another process may have created a fair queue with the same id.
		if attempt > 0 && !b.pause(ctx, attempt-1) {
			if ctx.Err() != nil {
				return nil, errNotSent(ctx)
			}
			return nil, errClosed
		}
		if fair {
			err = b.ready(ctx)
			if err == nil {
				err = b.readyFair(ctx)
			}
			if err != nil {
				return nil, err
			}
		}
		if _, err := b.exec(ctx, "", add, b.cfg.Namespace, name, levels); err != nil && !errors.Is(err, sqlconn.ErrIndeterminate) {
			return nil, err
		}
	}
}

// ensureKnown returns the queue, and creates it with one level if it does not exist. Unlike ensure
// it does not ask the database for a queue in b.queues. Its errors are those of ensure.
func (b *Broker) ensureKnown(ctx context.Context, name string) (*queue, error) {
	q, err := b.queue(ctx, name)
	if errors.Is(err, broker.ErrNoQueue) {
		return b.ensure(ctx, name, "", false)
	}
	return q, err
}

// Declare implements [broker.Declarer]. It creates the queues that do not exist, one after the
// other, and waits for the database. A queue keeps the levels and the fairness with which it was
// created; a difference is logged once. Declare stops at the first error; the queues before it
// exist then.
//
// Returns ErrMalformed for an invalid name or for levels that do not ascend or are more than 64.
// Returns ErrClosed after Close, and errors of the database.
func (b *Broker) Declare(ctx context.Context, qs ...broker.Queue) error {
	for _, want := range qs {
		if err := checkName(want.Name); err != nil {
			return err
		}
		text, err := levelsText(want.Levels)
		var q *queue
		if err == nil {
			q, err = b.ensure(ctx, want.Name, text, want.Fair)
		}
		if err != nil {
			return wrap(err, "declare", want.Name)
		}
		if q.levels != text || q.text.fair != want.Fair {
			q.warned.Do(func() {
				b.cfg.Logger.WarnContext(ctx, "sql: the queue exists with other priority levels or another fairness and is used as it is",
					"queue", q.name, "levels", q.levels, "asked", text, "fair", q.text.fair, "asked fair", want.Fair)
			})
		}
	}
	return nil
}

// Describe implements [broker.Describer]. It waits for the database. Returns ErrNoQueue if the
// queue does not exist, ErrMalformed for an invalid name, ErrClosed after Close, and errors of the
// database.
func (b *Broker) Describe(ctx context.Context, queue string) (broker.Queue, error) {
	if err := b.checkOpen(queue); err != nil {
		return broker.Queue{}, err
	}
	q, err := b.readQueue(ctx, queue)
	if err != nil {
		return broker.Queue{}, wrap(err, "describe", queue)
	}
	return broker.Queue{Name: q.name, Levels: slices.Clone(q.bounds), Fair: q.text.fair}, nil
}

// levelsText returns the stored form of the level bounds: the numbers, separated by commas. Returns
// ErrMalformed if they do not ascend, do not fit into 32 bits, or are more than maxLevels.
func levelsText(bounds []int) (string, error) {
	if len(bounds) > maxLevels {
		return "", fmt.Errorf("%w: %d levels, the limit is %d", broker.ErrMalformed, len(bounds), maxLevels)
	}
	s := make([]string, len(bounds))
	for i, n := range bounds {
		if i > 0 && n <= bounds[i-1] || n < math.MinInt32 || n > math.MaxInt32 {
			return "", fmt.Errorf("%w: levels %v do not ascend, or not within 32 bits", broker.ErrMalformed, bounds)
		}
		s[i] = strconv.Itoa(n)
	}
	return strings.Join(s, ","), nil
}

// parseLevels returns the bounds in their stored form. Parts that are not numbers are skipped.
func parseLevels(text string) (bounds []int) {
	for s := range strings.SplitSeq(text, ",") {
		if n, err := strconv.Atoi(s); err == nil {
			bounds = append(bounds, n)
		}
	}
	return bounds
}

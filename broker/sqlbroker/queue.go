package sqlbroker

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"sync"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/naming"
	"github.com/swarmiji/swarmiji/internal/sqlconn"
)

// maxLevels limits the priority levels of a queue.
const maxLevels = 64

// queue is a queue that exists in the database. Its id and levels never change.
type queue struct {
	id     int64
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
	q.bounds = parseLevels(q.levels)
	got, _ := b.queues.LoadOrStore(name, q)
	return got.(*queue), nil //nolint:forcetypeassert // nothing else is in it
}

// ensure returns the queue, and creates it with the given levels if it does not exist. An existing
// queue keeps its levels. It always waits for the database. Its errors are those of queue and of
// the database.
func (b *Broker) ensure(ctx context.Context, name, levels string) (*queue, error) {
	if err := b.checkOpen(name); err != nil {
		return nil, err
	}
	q, err := b.readQueue(ctx, name)
	if !errors.Is(err, broker.ErrNoQueue) {
		return q, err
	}
	if _, err := b.exec(ctx, "", b.text.addQueue, b.cfg.Namespace, name, levels); err != nil && !errors.Is(err, sqlconn.ErrIndeterminate) {
		return nil, err
	}
	return b.readQueue(ctx, name)
}

// ensureKnown returns the queue, and creates it with one level if it does not exist. Unlike ensure
// it does not ask the database for a queue in b.queues. Its errors are those of ensure.
func (b *Broker) ensureKnown(ctx context.Context, name string) (*queue, error) {
	q, err := b.queue(ctx, name)
	if errors.Is(err, broker.ErrNoQueue) {
		return b.ensure(ctx, name, "")
	}
	return q, err
}

// Declare implements [broker.Declarer]. It creates the queues that do not exist, one after the
// other, and waits for the database. A queue keeps the levels with which it was created; other
// levels are logged once. Declare stops at the first error; the queues before it exist then.
//
// Returns ErrMalformed for an invalid name or for levels that do not ascend or are more than 64.
// Returns ErrClosed after Close, and errors of the database.
func (b *Broker) Declare(ctx context.Context, qs ...broker.Queue) error {
	for _, want := range qs {
		if err := checkName(want.Name); err != nil {
			return err
		}
		if err := broker.RefuseFair(want); err != nil {
			return wrap(err, "declare", want.Name)
		}
		text, err := levelsText(want.Levels)
		var q *queue
		if err == nil {
			q, err = b.ensure(ctx, want.Name, text)
		}
		if err != nil {
			return wrap(err, "declare", want.Name)
		}
		if q.levels != text {
			q.warned.Do(func() {
				b.cfg.Logger.WarnContext(ctx, "sql: the queue exists with other priority levels and is used as it is",
					"queue", q.name, "levels", q.levels, "asked", text)
			})
		}
	}
	return nil
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

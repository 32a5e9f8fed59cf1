package natsbroker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"

	"github.com/nats-io/nats.go"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/naming"
	"github.com/swarmiji/swarmiji/internal/natsconn"
)

// queue holds the known state of a queue and the names that every message needs.
type queue struct {
	name     string
	bounds   []int    // of its levels; empty: one level
	work     []string // beginnings of the subjects, by level
	schedule string
	dead     string
	skip     int // length of the part of a subject that a message id for the server omits

	deadPut     atomic.Int64 // letters that this process has stored since it last counted them
	deadDropped atomic.Int64 // letters that this process has dropped

	// when its record was stored, in Unix nanoseconds; another time means another stream
	recordedAt atomic.Int64
}

// record is the JSON in a queue's record subject. A queue exists if it has a record. The record is
// written once and never changed.
type record struct {
	Levels []int `json:"levels,omitempty"`
}

// newQueue returns a queue with the given level bounds. It sends nothing to the server.
func (b *Broker) newQueue(name string, bounds []int) *queue {
	q := &queue{name: name, bounds: bounds, schedule: b.names.schedule(name), dead: b.names.dead(name), skip: len(b.names.prefix) + len("T.")}
	for i := range max(len(bounds), 1) {
		q.work = append(q.work, b.names.work(name, i))
	}
	return q
}

// levelOf returns the index of the level for a priority: the first one whose bound is at least
// priority, otherwise the last.
func (q *queue) levelOf(priority int) int {
	for i, bound := range q.bounds {
		if priority <= bound {
			return i
		}
	}
	return len(q.work) - 1
}

// msgID returns the key of the pair (id, generation) by which the server drops repeated messages:
// queue, level and id of the subject, then the generation if it is not 0.
func (q *queue) msgID(subject string, generation int) string {
	if generation == 0 {
		return subject[q.skip:]
	}
	return fmt.Sprintf("%s/%d", subject[q.skip:], generation)
}

// queue returns the queue with the given name. If this process does not know the queue, it reads
// the record from the server, and creates the stream if that does not exist. Returns ErrNoQueue
// if the queue does not exist, ErrMalformed if the name is not valid, ErrClosed after Close. It
// waits for the server.
func (b *Broker) queue(ctx context.Context, name string) (*queue, error) {
	if v, ok := b.queues.Load(name); ok {
		if b.stop.Err() != nil {
			return nil, errClosed()
		}
		return v.(*queue), nil
	}
	if !naming.ValidName(name) {
		return nil, fmt.Errorf("%w: queue name %.140q", broker.ErrMalformed, name)
	}
	for {
		if _, err := b.ensureStream(ctx); err != nil {
			return nil, err
		}
		q, err := b.loadQueue(ctx, name)
		if !errors.Is(err, natsconn.ErrNoStream) {
			return q, err
		}
		b.forgetStream(ctx)
	}
}

// loadQueue reads a queue's record from the server and remembers the queue in b.queues. If the
// record was lost with its stream, and this Broker has declared or consumed the queue, it writes
// the record again. Returns ErrNoQueue if the record does not exist otherwise, ErrMalformed if it
// is damaged, natsconn.ErrNoStream without a stream. It waits for the server.
func (b *Broker) loadQueue(ctx context.Context, name string) (*queue, error) {
	st, err := b.conn.GetLast(ctx, b.names.stream, b.names.record(name))
	if errors.Is(err, natsconn.ErrNotFound) {
		if v, ok := b.declared.Load(name); ok {
			return b.writeRecord(ctx, name, v.([]int))
		}
		return nil, broker.ErrNoQueue
	}
	if err != nil {
		return nil, err
	}
	var r record
	if err := json.Unmarshal(st.Data, &r); err != nil || !ascending(r.Levels) {
		return nil, fmt.Errorf("%w: the queue's record is %.80q", broker.ErrMalformed, st.Data)
	}
	q := b.newQueue(name, r.Levels)
	q.recordedAt.Store(st.Time.UnixNano())
	v, _ := b.queues.LoadOrStore(name, q)
	return v.(*queue), nil
}

// ascending reports whether levels is strictly ascending.
func ascending(levels []int) bool {
	for i := 1; i < len(levels); i++ {
		if levels[i] <= levels[i-1] {
			return false
		}
	}
	return true
}

// writeRecord writes a queue's record with the given levels, unless it exists. One level is stored
// as none. It returns the queue with the levels of the stored record, and logs once per queue if
// they differ from levels. It notes in b.declared that this Broker has declared the queue.
//
// It creates a missing stream, and repeats while the server is busy. It waits for the server and
// returns its other errors.
func (b *Broker) writeRecord(ctx context.Context, name string, levels []int) (*queue, error) {
	if len(levels) == 1 {
		levels = nil
	}
	data, err := json.Marshal(record{Levels: levels})
	if err != nil {
		return nil, err
	}
	m := &nats.Msg{Subject: b.names.record(name), Data: data, Header: nats.Header{headerExpectedSeq: {"0"}}}
	for {
		_, err = b.conn.Publish(ctx, m)
		switch {
		case err == nil, errors.Is(err, natsconn.ErrWrongSequence):
			b.declared.Store(name, levels)
			q, err := b.loadQueue(ctx, name)
			if err == nil && levels != nil && !slices.Equal(q.bounds, levels) {
				b.warnLevels(ctx, name, levels, q.bounds)
			}
			return q, err
		case errors.Is(err, natsconn.ErrNoStream):
			b.forgetStream(ctx)
			if _, err := b.ensureStream(ctx); err != nil {
				return nil, err
			}
		case !b.retryLater(ctx, err):
			return nil, err
		}
	}
}

// warnLevels logs, once per queue, that it exists with the levels have, and that want were
// declared.
func (b *Broker) warnLevels(ctx context.Context, name string, want, have []int) {
	if b.firstTime("levels " + name) {
		b.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "nats: the queue exists with other priority levels and is used as it is; delete its record when it is empty so that it is created again",
			slog.String("queue", name), slog.String("subject", b.names.record(name)), slog.Any("wanted", want), slog.Any("existing", have))
	}
}

// Declare implements [broker.Declarer]. It creates the queues that do not exist, and waits for the
// server. The levels of the first declaration are valid for ever and for every process. It stops
// at the first error; the queues before it exist then. Returns ErrMalformed for a name that is not
// valid or levels that do not ascend.
func (b *Broker) Declare(ctx context.Context, qs ...broker.Queue) error {
	for _, q := range qs {
		err := broker.RefuseFair(q)
		if err == nil {
			err = b.declare(ctx, q.Name, slices.Clone(q.Levels))
		}
		if err != nil {
			return wrap(err, "declare", q.Name)
		}
	}
	return nil
}

// declare creates a queue if it does not exist, and notes in b.declared that this Broker has
// declared it. It always asks the server and waits for it. If the queue exists with other levels,
// it logs that once and returns nil. Returns ErrMalformed if the levels do not ascend or the name
// is not valid.
func (b *Broker) declare(ctx context.Context, name string, levels []int) error {
	if !ascending(levels) {
		return fmt.Errorf("%w: levels %v do not ascend", broker.ErrMalformed, levels)
	}
	b.queues.Delete(name) // forces a read from the server
	q, err := b.queue(ctx, name)
	if errors.Is(err, broker.ErrNoQueue) {
		_, err = b.writeRecord(ctx, name, levels)
		return err
	}
	if err != nil {
		return err
	}
	b.declared.Store(name, q.bounds)
	if len(levels) > 0 && !slices.Equal(q.bounds, levels) && (len(levels) > 1 || q.bounds != nil) {
		b.warnLevels(ctx, name, levels, q.bounds)
	}
	return nil
}

// Locate implements [broker.Locator]. It returns the stream, and the subject of messages of the
// default priority without the id. If this process does not know the queue, the subject is that
// of level 0. It sends nothing.
func (b *Broker) Locate(name string) (exchange, routingKey string) {
	level := 0
	if v, ok := b.queues.Load(name); ok {
		level = v.(*queue).levelOf(defaultPriority)
	}
	subject := b.names.work(name, level)
	return b.names.stream, subject[:len(subject)-1]
}

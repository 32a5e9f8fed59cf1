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
	"github.com/swarmiji/swarmiji/internal/keyset"
	"github.com/swarmiji/swarmiji/internal/natsconn"
)

// queue is what is known of a queue, with the names that every message needs.
type queue struct {
	name     string
	bounds   []int    // of its levels; none: one level
	work     []string // the subjects' beginnings, by level
	schedule string
	dead     string
	skip     int // of a subject, what is left out in a message's id for the server

	deadPut     atomic.Int64 // letters that this process has put since it last looked how many there are
	deadDropped atomic.Int64 // letters that this process has dropped

	born atomic.Int64 // when its record was stored, in Unix nanoseconds: another time means another stream
}

// record is what a queue's record holds. The first that is written holds for ever.
type record struct {
	Levels []int `json:"levels,omitempty"`
}

func (b *Broker) newQueue(name string, bounds []int) *queue {
	q := &queue{name: name, bounds: bounds, schedule: b.names.schedule(name), dead: b.names.dead(name), skip: len(b.names.prefix) + len("T.")}
	for i := range max(len(bounds), 1) {
		q.work = append(q.work, b.names.work(name, i))
	}
	return q
}

// level is the level of a priority.
func (q *queue) level(priority int) int {
	for i, bound := range q.bounds {
		if priority <= bound {
			return i
		}
	}
	return len(q.work) - 1
}

// msgID names the pair (id, generation) for the server's memory of what was published.
func (q *queue) msgID(subject string, generation int) string {
	if generation == 0 {
		return subject[q.skip:]
	}
	return fmt.Sprintf("%s/%d", subject[q.skip:], generation)
}

// queue returns a queue that exists, or broker.ErrNoQueue.
func (b *Broker) queue(ctx context.Context, name string) (*queue, error) {
	if v, ok := b.queues.Load(name); ok {
		if b.stop.Err() != nil {
			return nil, errClosed()
		}
		return v.(*queue), nil
	}
	if !keyset.ValidName(name) {
		return nil, fmt.Errorf("%w: queue name %.140q", broker.ErrMalformed, name)
	}
	for {
		if _, err := b.ready(ctx); err != nil {
			return nil, err
		}
		q, err := b.learn(ctx, name)
		if !errors.Is(err, natsconn.ErrNoStream) {
			return q, err
		}
		b.streamGone(ctx)
	}
}

// learn reads a queue's record. One that has gone with its stream, and that this Broker has declared or consumed from, is
// written again.
func (b *Broker) learn(ctx context.Context, name string) (*queue, error) {
	st, err := b.conn.GetLast(ctx, b.names.stream, b.names.record(name))
	if errors.Is(err, natsconn.ErrNotFound) {
		if v, ok := b.declared.Load(name); ok {
			return b.settle(ctx, name, v.([]int))
		}
		return nil, fmt.Errorf("%w: nobody has declared it", broker.ErrNoQueue)
	}
	if err != nil {
		return nil, err
	}
	var r record
	if err := json.Unmarshal(st.Data, &r); err != nil || !ascending(r.Levels) {
		return nil, fmt.Errorf("%w: the queue's record is %.80q", broker.ErrMalformed, st.Data)
	}
	q := b.newQueue(name, r.Levels)
	q.born.Store(st.Time.UnixNano())
	v, _ := b.queues.LoadOrStore(name, q)
	return v.(*queue), nil
}

func ascending(levels []int) bool {
	for i := 1; i < len(levels); i++ {
		if levels[i] <= levels[i-1] {
			return false
		}
	}
	return true
}

// settle writes a queue's record unless there is one, and returns what holds.
func (b *Broker) settle(ctx context.Context, name string, levels []int) (*queue, error) {
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
			q, err := b.learn(ctx, name)
			if err == nil && levels != nil && !slices.Equal(q.bounds, levels) {
				b.warnLevels(ctx, name, levels, q.bounds)
			}
			return q, err
		case errors.Is(err, natsconn.ErrNoStream):
			b.streamGone(ctx)
			if _, err := b.ready(ctx); err != nil {
				return nil, err
			}
		case !b.again(ctx, err):
			return nil, err
		}
	}
}

func (b *Broker) warnLevels(ctx context.Context, name string, want, have []int) {
	if b.once("levels " + name) {
		b.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "nats: the queue exists with other priority levels and is used as it is; delete its record when it is empty to have it made anew",
			slog.String("queue", name), slog.String("subject", b.names.record(name)), slog.Any("wanted", want), slog.Any("existing", have))
	}
}

// Declare implements [broker.Declarer]. The levels that a queue was first declared with hold for ever and for every process.
func (b *Broker) Declare(ctx context.Context, qs ...broker.Queue) error {
	for _, q := range qs {
		if err := b.declare(ctx, q.Name, slices.Clone(q.Levels)); err != nil {
			return wrap(err, "declare", q.Name)
		}
	}
	return nil
}

func (b *Broker) declare(ctx context.Context, name string, levels []int) error {
	if !ascending(levels) {
		return fmt.Errorf("%w: levels %v do not ascend", broker.ErrMalformed, levels)
	}
	b.queues.Delete(name) // it is asked for
	q, err := b.queue(ctx, name)
	if errors.Is(err, broker.ErrNoQueue) {
		_, err = b.settle(ctx, name, levels)
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

// Locate returns the stream, and the subject of messages of the default priority without the id.
func (b *Broker) Locate(name string) (exchange, routingKey string) {
	level := 0
	if v, ok := b.queues.Load(name); ok {
		level = v.(*queue).level(defaultPriority)
	}
	subject := b.names.work(name, level)
	return b.names.stream, subject[:len(subject)-1]
}

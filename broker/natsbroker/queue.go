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
	"github.com/swarmiji/swarmiji/internal/lanes"
	"github.com/swarmiji/swarmiji/internal/naming"
	"github.com/swarmiji/swarmiji/internal/natsconn"
)

// queue holds the known state of a queue and the names that every message needs.
type queue struct {
	name   string
	bounds []int // of its levels; empty: one level
	fair   bool
	work   []string // beginnings of the subjects, level by level and lane by lane
	// names of the durable consumers, in the same order
	consumers []string
	schedule  string
	dead      string
	skip      int // length of the part of a subject that a message id for the server omits

	deadPut     atomic.Int64 // letters that this process has stored since it last counted them
	deadDropped atomic.Int64 // letters that this process has dropped

	// when its record was stored, in Unix nanoseconds; another time means another stream
	recordedAt atomic.Int64
}

// record is the JSON in a queue's record subject. A queue exists if it has a record. The record is
// written once and never changed.
type record struct {
	// a list of bounds, or of a fair queue a fairLevels; see parseRecord
	Levels json.RawMessage `json:"levels,omitempty"`
}

// fairLevels holds the levels of a fair queue in its record. Versions without fair queues refuse
// such a record, so that none of them consumes only a part of the queue.
type fairLevels struct {
	Fair []int `json:"fair"`
}

// recordOf returns the record of a queue with the levels and the fairness of q.
func recordOf(q broker.Queue) ([]byte, error) {
	var r record
	var err error
	switch {
	case q.Fair:
		r.Levels, err = json.Marshal(fairLevels{append([]int{}, q.Levels...)})
	case len(q.Levels) > 0:
		r.Levels, err = json.Marshal(q.Levels)
	}
	if err != nil {
		return nil, err
	}
	return json.Marshal(r)
}

// parseRecord returns the levels and the fairness in a record. It returns false if the record is
// not JSON of its form, or if its levels do not ascend.
func parseRecord(data []byte) (q broker.Queue, ok bool) {
	var r record
	if json.Unmarshal(data, &r) != nil {
		return q, false
	}
	var fair fairLevels
	switch {
	case len(r.Levels) == 0:
		return q, true
	case json.Unmarshal(r.Levels, &q.Levels) == nil:
	case json.Unmarshal(r.Levels, &fair) == nil && fair.Fair != nil:
		q.Levels, q.Fair = fair.Fair, true
	default:
		return q, false
	}
	return q, ascending(q.Levels)
}

// newQueue returns the queue with the name, the levels and the fairness of q. It sends nothing to
// the server.
func (b *Broker) newQueue(q broker.Queue) *queue {
	n := &queue{name: q.Name, bounds: q.Levels, fair: q.Fair, schedule: b.names.schedule(q.Name), dead: b.names.dead(q.Name), skip: len(b.names.prefix) + len("T.")}
	for i := range max(len(q.Levels), 1) {
		for lane := range lanes.Width(q.Fair) {
			n.work = append(n.work, b.names.work(q.Name, laneToken(i, lane)))
			n.consumers = append(n.consumers, b.names.consumer(q.Name, laneToken(i, lane)))
		}
	}
	return n
}

// width returns the number of lanes of each level.
func (q *queue) width() int { return lanes.Width(q.fair) }

// levelOf returns the index of the level for a priority: the first one whose bound is at least
// priority, otherwise the last.
func (q *queue) levelOf(priority int) int {
	for i, bound := range q.bounds {
		if priority <= bound {
			return i
		}
	}
	return max(len(q.bounds), 1) - 1
}

// workOf returns the beginning of the subjects of a priority and a lane. A queue that is not fair
// has only lane 0.
func (q *queue) workOf(priority, lane int) string {
	width := q.width()
	return q.work[q.levelOf(priority)*width+min(lane, width-1)]
}

// laneOf returns the lane of m in q, and counts m as a submission of its key if it is one.
func (b *Broker) laneOf(q *queue, m *broker.Message) int {
	if !q.fair {
		return lanes.Of(m)
	}
	return b.lanes.Choose(q.workOf(m.Priority, 0), m)
}

// described returns the settings of q.
func (q *queue) described() broker.Queue {
	return broker.Queue{Name: q.name, Levels: q.bounds, Fair: q.fair}
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
			return b.writeRecord(ctx, v.(broker.Queue))
		}
		return nil, broker.ErrNoQueue
	}
	if err != nil {
		return nil, err
	}
	have, ok := parseRecord(st.Data)
	if !ok {
		return nil, fmt.Errorf("%w: the queue's record is %.80q", broker.ErrMalformed, st.Data)
	}
	have.Name = name
	q := b.newQueue(have)
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

// writeRecord writes a queue's record with the levels and the fairness of want, unless it exists.
// One level is stored as none. It returns the queue of the stored record, and logs once per queue
// if that differs from want. It notes in b.declared that this Broker has declared the queue.
//
// It creates a missing stream, and repeats while the server is busy. It waits for the server and
// returns its other errors.
func (b *Broker) writeRecord(ctx context.Context, want broker.Queue) (*queue, error) {
	if len(want.Levels) == 1 {
		want.Levels = nil
	}
	data, err := recordOf(want)
	if err != nil {
		return nil, err
	}
	m := &nats.Msg{Subject: b.names.record(want.Name), Data: data, Header: nats.Header{headerExpectedSeq: {"0"}}}
	for {
		_, err = b.conn.Publish(ctx, m)
		switch {
		case err == nil, errors.Is(err, natsconn.ErrWrongSequence):
			b.declared.Store(want.Name, want)
			q, err := b.loadQueue(ctx, want.Name)
			if err == nil {
				b.warnLevels(ctx, want, q)
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

// warnLevels logs, once per queue, that it exists as have, with other levels or another fairness
// than want. It does nothing if want names neither levels nor Fair.
func (b *Broker) warnLevels(ctx context.Context, want broker.Queue, have *queue) {
	levels := want.Levels
	if len(levels) == 1 {
		levels = nil
	}
	if len(want.Levels) == 0 && !want.Fair || slices.Equal(levels, have.bounds) && want.Fair == have.fair {
		return
	}
	if b.firstTime("levels " + want.Name) {
		b.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "nats: the queue exists with other priority levels or another fairness and is used as it is; delete its record when it is empty so that it is created again",
			slog.String("queue", want.Name), slog.String("subject", b.names.record(want.Name)), slog.Any("wanted", want.Levels), slog.Any("existing", have.bounds),
			slog.Bool("wanted_fair", want.Fair), slog.Bool("existing_fair", have.fair))
	}
}

// Describe implements [broker.Describer]. It reads the queue's record from the server. Returns
// ErrNoQueue if the queue does not exist, ErrMalformed for a name that is not valid or a damaged
// record.
func (b *Broker) Describe(ctx context.Context, name string) (broker.Queue, error) {
	b.queues.Delete(name) // forces a read from the server
	q, err := b.queue(ctx, name)
	if err != nil {
		return broker.Queue{}, wrap(err, "describe", name)
	}
	d := q.described()
	d.Levels = slices.Clone(d.Levels)
	return d, nil
}

// Declare implements [broker.Declarer]. It creates the queues that do not exist, and waits for the
// server. The levels and the fairness of the first declaration are valid for ever and for every
// process. It stops at the first error; the queues before it exist then. Returns ErrMalformed for a
// name that is not valid or levels that do not ascend.
func (b *Broker) Declare(ctx context.Context, qs ...broker.Queue) error {
	for _, q := range qs {
		if err := b.declare(ctx, broker.Queue{Name: q.Name, Levels: slices.Clone(q.Levels), Fair: q.Fair}); err != nil {
			return wrap(err, "declare", q.Name)
		}
	}
	return nil
}

// declare creates a queue if it does not exist, and notes in b.declared that this Broker has
// declared it. It always asks the server and waits for it. If the queue exists with other levels
// or another fairness, it logs that once and returns nil. Returns ErrMalformed if the levels do not
// ascend or the name is not valid.
func (b *Broker) declare(ctx context.Context, want broker.Queue) error {
	if !ascending(want.Levels) {
		return fmt.Errorf("%w: levels %v do not ascend", broker.ErrMalformed, want.Levels)
	}
	b.queues.Delete(want.Name) // forces a read from the server
	q, err := b.queue(ctx, want.Name)
	if errors.Is(err, broker.ErrNoQueue) {
		_, err = b.writeRecord(ctx, want)
		return err
	}
	if err != nil {
		return err
	}
	b.declared.Store(want.Name, q.described())
	b.warnLevels(ctx, want, q)
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
	subject := b.names.work(name, laneToken(level, 0))
	return b.names.stream, subject[:len(subject)-1]
}

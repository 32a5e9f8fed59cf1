package sqlbroker

import (
	"context"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/messagecode"
	"github.com/swarmiji/swarmiji/internal/sqlconn"
)

// row is an encoded message with its queue, for insertion.
type row struct {
	q        *queue
	m        *broker.Message
	level    int64
	due      int64 // microseconds since 1970, or with relative from now
	relative int64 // 1 or 0
	meta     []byte
	expires  int64
}

// fixedSize is the approximate size of a message without its variable parts.
const fixedSize = 200

// rowSize returns the approximate size of a message, in bytes.
func rowSize(e *sqlconn.Entry[row]) int { return fixedSize + len(e.V.m.Body) + len(e.V.meta) }

// row returns m as a row of q, for delivery at the given time; zero: at once. A time from
// broker.FromNow counts from the insertion, by the database's clock. meta is the result of check.
func (b *Broker) row(q *queue, m *broker.Message, at time.Time, meta []byte) row {
	r := row{q: q, m: m, level: int64(q.levelOf(m.Priority)), meta: meta, expires: sqlconn.Micros(m.Expires)}
	if d, fromNow := broker.FromNow(at); fromNow {
		r.due, r.relative = b.delay(d), 1
	} else if r.due = sqlconn.Micros(at); at.IsZero() {
		r.relative = 1
	}
	return r
}

// delay returns d as a duration for the database, in microseconds. It rounds up, so that no message
// is early. SQLite's clock is cut to milliseconds, so its times from now need one more.
func (b *Broker) delay(d time.Duration) int64 {
	if d <= 0 {
		return 0
	}
	us := int64((d + time.Microsecond - 1) / time.Microsecond)
	if !b.postgres() {
		us += 999
	}
	return us
}

// check returns the stored headers and properties of m. Returns ErrMalformed or ErrTooLarge if m
// cannot be stored.
func (b *Broker) check(m *broker.Message) ([]byte, error) {
	if err := messagecode.Check(m, b.cfg.MaxBody); err != nil {
		return nil, err
	}
	if !utf8.ValidString(m.ContentType) || strings.Contains(m.ContentType, "\x00") {
		return nil, fmt.Errorf("%w: the content type is not text", broker.ErrMalformed)
	}
	return messagecode.AppendExtras(nil, m)
}

// values returns the row in the order of insertColumns.
func (r *row) values() []any {
	v := []any{
		r.q.id, r.level, r.due, r.relative, r.m.ID, int64(r.m.Generation), int64(r.m.Priority), r.expires, r.m.ContentType, r.meta, body(r.m),
	}
	if r.q.text.fair {
		v = append(v, r.m.Key, weight(r.m))
	}
	return v
}

// weight returns the share of the key of m in the turns, 1 or more.
func weight(m *broker.Message) int64 { return int64(max(1, m.Weight)) }

// body returns the body of m, never nil, because nil would be NULL.
func body(m *broker.Message) []byte {
	if m.Body == nil {
		return []byte{}
	}
	return m.Body
}

// Publish implements [broker.Broker]. Concurrent calls share a transaction. Its errors are those of
// publish.
func (b *Broker) Publish(ctx context.Context, queue string, m *broker.Message) error {
	return b.publish(ctx, broker.Outgoing{Queue: queue, Message: m})
}

// PublishAt implements [broker.Delayer]. It is Publish with a due time. The database's clock
// counts.
func (b *Broker) PublishAt(ctx context.Context, queue string, m *broker.Message, at time.Time) error {
	return b.publish(ctx, broker.Outgoing{Queue: queue, Message: m, At: at})
}

// publish adds the message to the next transaction and waits for its commit.
//
//   - The message or the queue name is invalid: ErrMalformed or ErrTooLarge.
//   - The queue does not exist: ErrNoQueue.
//   - ctx has ended or ends before the message is sent: ErrUnavailable.
//   - ctx ends after that, or the answer is lost: ErrIndeterminate.
//   - A transaction that is open has stored a message with the same id: ErrUnavailable.
//   - The disk is full: ErrBlocked.
//   - The Broker is closed: ErrClosed.
func (b *Broker) publish(ctx context.Context, o broker.Outgoing) error {
	r, err := b.prepare(ctx, o)
	if err != nil {
		return wrap(err, "publish to", o.Queue)
	}
	if ctx.Err() != nil {
		return wrap(errNotSent(ctx), "publish to", o.Queue)
	}
	e := &sqlconn.Entry[row]{V: r, Call: sqlconn.NewBatchCall(1)}
	b.out.Add(e)
	return wrap(b.out.Wait(ctx, e.Call, []*sqlconn.Entry[row]{e})[0], "publish to", o.Queue)
}

// prepare returns the encoded message of o. It waits for the database if the queue is not known.
// Returns ErrMalformed, ErrTooLarge, ErrNoQueue, ErrUnavailable or ErrClosed.
func (b *Broker) prepare(ctx context.Context, o broker.Outgoing) (row, error) {
	if err := b.checkOpen(o.Queue); err != nil {
		return row{}, err
	}
	meta, err := b.check(o.Message)
	if err != nil {
		return row{}, err
	}
	q, err := b.queue(ctx, o.Queue)
	if err != nil {
		return row{}, err
	}
	return b.row(q, o.Message, o.At, meta), nil
}

// PublishBatch implements [broker.BatchPublisher]. The messages are sent in their order, up to
// 1,000 and about 4 MiB in a transaction. It waits for all. A message that fails does not stop the
// others, except those of its transaction. Returns nil if all were stored, otherwise a
// [broker.BatchError] with the error of each message, one of those of publish.
func (b *Broker) PublishBatch(ctx context.Context, ms []broker.Outgoing) error {
	errs := make([]error, len(ms))
	es := make([]*sqlconn.Entry[row], 0, len(ms))
	at := make([]int, 0, len(ms))
	failed := false
	for i, o := range ms {
		r, err := b.prepare(ctx, o)
		if err != nil {
			errs[i], failed = wrap(err, "publish to", o.Queue), true
			continue
		}
		es, at = append(es, &sqlconn.Entry[row]{V: r}), append(at, i)
	}
	if len(es) > 0 {
		c := sqlconn.NewBatchCall(len(es))
		for _, e := range es {
			e.Call = c
		}
		b.out.Add(es...)
		for i, err := range b.out.Wait(ctx, c, es) {
			if err != nil {
				errs[at[i]], failed = wrap(err, "publish to", ms[at[i]].Queue), true
			}
		}
	}
	if failed {
		return &broker.BatchError{Errs: errs}
	}
	return nil
}

// sameFor is the time after a message with a stored id in which PostgreSQL checks each id.
const sameFor = time.Minute

// insert stores the messages es and notifies the consumers of their queues after the commit. A
// message with the same id and generation as a stored one is dropped. Returns errors of the
// database. It is the send function of the batcher of published messages.
//
// Nearly all ids are new. On PostgreSQL an insert that may meet a stored id takes a fifth longer.
// So the plain statement comes first and fails if there is such an id, see isSame.
//
// If a transaction of a caller has stored the same id and is still open, the insert waits for its
// lock. So tx is hasty: it fails after a while, and the other messages do not wait longer.
func (b *Broker) insert(ctx context.Context, tx *sqlconn.Tx, es []*sqlconn.Entry[row]) error {
	tx.Hasty(true)
	topics := make(map[*queue]bool)
	for _, text := range []*texts{b.text, b.fairText} {
		var rows [][]any
		for _, e := range es {
			if q := e.V.q; q.text == text {
				rows = append(rows, e.V.values())
				if !topics[q] {
					topics[q] = true
					tx.Notify(q.topic)
				}
			}
		}
		if len(rows) == 0 {
			continue
		}
		query := text.insertNew
		if time.Now().UnixNano() < b.sameUntil.Load() {
			query = text.insert
		}
		if _, err := b.each(ctx, tx, query, insertColumns(text.fair), rows); err != nil {
			return err
		}
	}
	return nil
}

// inserting returns the method that runs a transaction for the messages es. This is Single if they
// need only one statement, because all go to one table. Otherwise it is Update.
func (b *Broker) inserting(es []*sqlconn.Entry[row]) sqlconn.Transaction {
	for _, e := range es {
		if e.V.q.text != es[0].V.q.text {
			return b.conn.Update
		}
	}
	return b.conn.Single
}

// isSame reports whether an insert failed with err because a message with such an id is stored.
// insert then checks the ids for the time sameFor, so that a program that often repeats ids does
// not fail each time.
func (b *Broker) isSame(_ *sqlconn.Entry[row], err error) bool {
	if !sqlconn.IsUnique(err) {
		return false
	}
	b.sameUntil.Store(time.Now().Add(sameFor).UnixNano())
	return true
}

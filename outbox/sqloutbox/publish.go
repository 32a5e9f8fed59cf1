package sqloutbox

import (
	"context"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/messagecode"
	"github.com/swarmiji/swarmiji/internal/naming"
	"github.com/swarmiji/swarmiji/internal/sqlconn"
	"github.com/swarmiji/swarmiji/outbox"
	"github.com/swarmiji/swarmiji/tx"
)

const (
	// maxInsert and maxInsertBytes limit the messages of one statement.
	maxInsert      = 100
	maxInsertBytes = 4 << 20
	// maxKey limits an OrderKey, in bytes.
	maxKey = 255
	// prepareTime limits the wait for the tables in PublishTx. If the caller's transaction has locked
	// the file already, no wait would help.
	prepareTime = 5 * time.Second
)

// PublishTx implements [broker.TxPublisher]. It stores the messages in the transaction t of the
// caller. A relay publishes them after the commit.
//
//   - Returns [broker.ErrMalformed] for a message, queue or OrderKey that is not valid, and
//     [broker.ErrTooLarge]. Whether the queue exists is not known before a relay publishes.
//   - Returns [broker.ErrUnsupported] if t is a transaction of another database, is read-only, or may
//     not write to the outbox.
//   - After these errors nothing was stored, and t can go on and commit.
//   - The first call prepares the tables, see [Store.Prepare], and has the errors of that.
//   - Other errors are those of the database. They may have ended t.
func (s *Store) PublishTx(ctx context.Context, t tx.Tx, ms []broker.Outgoing) error {
	rows := make([][]any, len(ms))
	sizes := make([]int, len(ms))
	for i, o := range ms {
		var err error
		if rows[i], err = s.encode(o); err != nil {
			return fmt.Errorf("outbox publish to %.128q: %w", o.Queue, err)
		}
		sizes[i] = len(o.Message.Body)
	}
	if len(ms) == 0 {
		return nil
	}
	preparing, cancel := context.WithTimeout(ctx, prepareTime)
	defer cancel()
	o, err := s.ready(preparing)
	if err != nil {
		return fmt.Errorf("%w (call Prepare before the first transaction)", err)
	}
	if err := o.check(ctx, t); err != nil {
		return fmt.Errorf("outbox publish: %w", err)
	}
	for from := 0; from < len(rows); {
		to, size := from+1, sizes[from]
		for to < len(rows) && to < from+maxInsert && size+sizes[to] <= maxInsertBytes {
			size += sizes[to]
			to++
		}
		if err := s.insert(ctx, o, t, rows[from:to]); err != nil {
			return fmt.Errorf("outbox publish: %w", err)
		}
		from = to
	}
	if s.conn.Dialect() == sqlconn.Postgres { // relays watch a file themselves
		s.bell.strike()
	}
	return nil
}

// encode returns the values of a message in the order of columns. Returns ErrMalformed or
// ErrTooLarge if it cannot be stored.
func (s *Store) encode(o broker.Outgoing) ([]any, error) {
	m := o.Message
	if err := messagecode.Check(m, s.cfg.MaxBody); err != nil {
		return nil, err
	}
	for _, err := range []error{checkText("content type", m.ContentType), checkText("OrderKey", o.OrderKey)} {
		if err != nil {
			return nil, err
		}
	}
	switch {
	case !naming.ValidName(o.Queue):
		return nil, fmt.Errorf("%w: not a valid queue name", broker.ErrMalformed)
	case len(o.OrderKey) > maxKey:
		return nil, fmt.Errorf("%w: an OrderKey of %d bytes, the limit is %d", broker.ErrMalformed, len(o.OrderKey), maxKey)
	}
	meta, err := messagecode.AppendExtras([]byte{}, m)
	if err != nil {
		return nil, err
	}
	body := m.Body
	if body == nil {
		body = []byte{} // nil would be NULL
	}
	at, fromNow := s.at(o.At)
	return []any{
		s.cfg.Namespace, bucketOf(o.OrderKey), o.OrderKey, o.Queue, at, fromNow, m.ID, int64(m.Generation), int64(m.Priority),
		sqlconn.Micros(m.Expires), m.ContentType, meta, body,
	}, nil
}

// checkText returns ErrMalformed if a database cannot store s as a text.
func checkText(what, s string) error {
	if !utf8.ValidString(s) || strings.Contains(s, "\x00") {
		return fmt.Errorf("%w: the %s is not text", broker.ErrMalformed, what)
	}
	return nil
}

// at returns the stored form of a time of delivery: a time, or with fromNow 1 a duration from now,
// in microseconds. It rounds up, since SQLite's clock is cut to milliseconds.
func (s *Store) at(t time.Time) (at, fromNow int64) {
	d, relative := broker.FromNow(t)
	if t.IsZero() || relative && d <= 0 {
		return 0, 0
	}
	if !relative {
		return sqlconn.Micros(t), 0
	}
	return int64((d+time.Microsecond-1)/time.Microsecond) + 999, 1
}

// bucketOf returns the bucket of a key. Without a key it is random.
func bucketOf(key string) int64 {
	if key == "" {
		return rand.Int64N(outbox.Buckets) //nolint:gosec // spreads the load
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(key)) // never fails
	return int64(h.Sum32() % outbox.Buckets)
}

// insert stores rows in the transaction t of a user. Rows that are stored already are left out.
// Returns ErrUnsupported if t is a transaction of another database.
func (s *Store) insert(ctx context.Context, o *origin, t tx.Tx, rows [][]any) error {
	n, err := t.Exec(ctx, o.insert(s.text, len(rows)), append(slices.Concat(rows...), o.id)...)
	if err != nil || n == int64(len(rows)) {
		return err
	}
	return o.confirm(ctx, t)
}

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
	maxInsert      = 20
	maxInsertBytes = 4 << 20
	// maxKey limits an OrderKey, in bytes.
	maxKey = 255
)

// rights are the privileges that the role of the caller's transaction needs.
var rights = []string{"SELECT swarmiji_outbox", "INSERT swarmiji_outbox"}

// PublishTx implements [broker.TxPublisher]. It stores the messages in the transaction t of the
// caller. A relay publishes them after the commit.
//
//   - Returns [broker.ErrMalformed] for a message, queue or OrderKey that is not valid, and
//     [broker.ErrTooLarge]. Whether the queue exists is not known before a relay publishes.
//   - Returns [broker.ErrUnsupported] if t is a transaction of another database, and
//     [broker.ErrAccess] if it is read-only or its role lacks a privilege, which the error names.
//   - The first call prepares the tables. On SQLite that waits for at most a second, and returns
//     [broker.ErrUnavailable] if t has locked the file. See [Store.Prepare].
//   - After these errors nothing was stored, and t can continue and commit.
//   - Other errors are those of the database. They may have ended t.
func (s *Store) PublishTx(ctx context.Context, t tx.Tx, ms []broker.Outgoing) error {
	if len(ms) == 0 {
		return nil
	}
	rows := make([][]any, len(ms))
	for i, o := range ms {
		var err error
		if rows[i], err = s.encode(o); err != nil {
			return fmt.Errorf("outbox publish to %.128q: %w", o.Queue, err)
		}
	}
	err := s.conn.Join(ctx, t, s.conn.Ready, rights, func(ctx context.Context, j *sqlconn.Tx) error {
		j.Notify(s.topic)
		for from := 0; from < len(rows); {
			to, size := from+1, len(ms[from].Message.Body)
			for ; to < min(len(rows), from+maxInsert) && size+len(ms[to].Message.Body) <= maxInsertBytes; to++ {
				size += len(ms[to].Message.Body)
			}
			if _, err := j.Exec(ctx, s.text.insert(to-from), slices.Concat(rows[from:to]...)...); err != nil {
				return err
			}
			from = to
		}
		return nil
	})
	return wrap(err, "publish")
}

// encode returns the values of a message for the statement of insert, in the order of its columns.
// Returns ErrMalformed if the message, its queue or its OrderKey is invalid, and ErrTooLarge for a
// body above MaxBody.
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

// checkText returns ErrMalformed if s is not valid UTF-8 or has a NUL, since a database cannot
// store it. The argument what names the text in the error.
func checkText(what, s string) error {
	if !utf8.ValidString(s) || strings.Contains(s, "\x00") {
		return fmt.Errorf("%w: the %s is not text", broker.ErrMalformed, what)
	}
	return nil
}

// at returns the two columns that store a time of delivery. With fromNow 0, at is the time in
// microseconds since 1970; 0: at once. With fromNow 1, at is the duration in microseconds from the
// database's time of the insert. It rounds a duration up, since SQLite's clock is cut to
// milliseconds.
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

// bucketOf returns the number of the bucket for an OrderKey, by its hash. Without a key the bucket
// is random.
func bucketOf(key string) int64 {
	if key == "" {
		return rand.Int64N(outbox.Buckets)
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(key)) // never fails
	return int64(h.Sum32() % outbox.Buckets)
}

// insert returns the SQL statement that stores n messages. Its parameters are the values of encode
// for each message. The statement skips messages that are stored already. It casts the values,
// since a client library may pass them without types.
func (t *texts) insert(n int) string {
	types := []string{"text", "bigint", "text", "text", "bigint", "bigint", "text", "bigint", "bigint", "bigint", "text", t.bytes, t.bytes}
	var b strings.Builder
	b.WriteString("INSERT INTO swarmiji_outbox (" + content + ", stored) VALUES ")
	for i := range n {
		values := make([]string, len(types))
		for j, kind := range types {
			values[j] = fmt.Sprintf("CAST($%d AS %s)", i*len(types)+j+1, kind)
		}
		values[4] += " + " + values[5] + " * " + t.now // at and from_now
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString("(" + strings.Join(values, ", ") + ", " + t.now + ")")
	}
	b.WriteString(" ON CONFLICT (namespace, id, generation, queue) DO NOTHING")
	return b.String()
}

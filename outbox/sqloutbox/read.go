package sqloutbox

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/messagecode"
	"github.com/swarmiji/swarmiji/internal/sqlconn"
	"github.com/swarmiji/swarmiji/outbox"
)

// Read implements [outbox.Store]: it returns up to 256 messages and 32 failed ones of these
// buckets, about 4 MiB together, ordered by Seq. If many is true, it returns up to 256 failed ones.
// It waits for the database and returns the errors of view.
func (s *Store) Read(ctx context.Context, buckets []int, many bool) ([]outbox.Row, error) {
	text := s.text.read
	if many {
		text = s.text.readMany
	}
	numbers := make([]int64, len(buckets))
	for i, b := range buckets {
		numbers[i] = int64(b)
	}
	var page []outbox.Row
	err := s.view(ctx, "read", func(ctx context.Context, tx *sqlconn.Tx) error {
		page = nil
		rows, err := tx.Query(ctx, text, s.cfg.Namespace, s.text.list(numbers))
		if err != nil {
			return err
		}
		for rows.Next() {
			r, err := scan(rows)
			if err != nil {
				return err
			}
			page = append(page, r)
		}
		return errors.Join(rows.Err(), rows.Close())
	})
	return page, err
}

// scan returns the message of the current row. A delay becomes a time by the clock of this process.
// Headers that cannot be read are left out. Returns the error of Scan.
func scan(rows sqlconn.Rows) (outbox.Row, error) {
	r := outbox.Row{Outgoing: broker.Outgoing{Message: &broker.Message{}}}
	m := r.Message
	var at, wait, expires int64
	var meta []byte
	if err := rows.Scan(&r.Seq, &r.OrderKey, &r.Queue, &at, &wait, &m.ID, &m.Generation, &m.Priority, &expires, &m.ContentType, &meta, &m.Body, &r.Failures); err != nil {
		return r, err
	}
	m.Expires = sqlconn.Time(expires)
	if r.At = sqlconn.Time(at); wait > 0 { // a time from now, whatever the clock of this process shows
		r.At = time.Now().Add(time.Duration(wait) * time.Microsecond)
	}
	if len(meta) > 0 {
		_ = messagecode.DecodeExtras(meta, m)
	}
	return r, nil
}

// Settle implements [outbox.Store]: one transaction deletes the sent rows, sets the next attempt of
// failed ones, and moves dead ones to the dead messages. It waits for the database and returns the
// errors of update.
//
//   - Its statements name the rows by number and id. So a late call changes only rows whose outcome
//     it has. A crash of the server may undo a commit that did not wait for the disk. PostgreSQL
//     then gives the number again.
//   - On PostgreSQL it executes at most three statements. So it ends in time over a slow link.
func (s *Store) Settle(ctx context.Context, o outbox.Settlement) error {
	var sent, failed, dead, gone [][]any
	for _, r := range o.Sent {
		sent = append(sent, []any{r.Seq, r.ID})
	}
	for _, f := range o.Failed {
		failed = append(failed, []any{f.Seq, f.ID, f.After.Microseconds(), clean(f.Reason)})
	}
	for _, f := range o.Dead {
		dead = append(dead, []any{f.Seq, f.ID, clean(f.Reason)})
		gone = append(gone, []any{f.Seq, f.ID})
	}
	return s.update(ctx, "settle", func(ctx context.Context, tx *sqlconn.Tx) error {
		if err := s.execute(ctx, tx, s.text.sent, sent, "seq bigint", "id text"); err != nil {
			return err
		}
		if err := s.execute(ctx, tx, s.text.failed, failed, "seq bigint", "id text", "wait bigint", "reason text"); err != nil {
			return err
		}
		if err := s.execute(ctx, tx, s.text.dead, dead, "seq bigint", "id text", "reason text"); err != nil || tx.Dialect() == sqlconn.Postgres {
			return err
		}
		return s.execute(ctx, tx, s.text.sent, gone)
	})
}

// execute runs a statement for rows with these columns: once for all on PostgreSQL, once for each
// on SQLite. It does nothing without rows. It returns the first error of the statement.
func (s *Store) execute(ctx context.Context, tx *sqlconn.Tx, text string, rows [][]any, columns ...string) error {
	if len(rows) > 0 && tx.Dialect() == sqlconn.Postgres {
		_, err := tx.Exec(ctx, text, append([]any{s.cfg.Namespace}, sqlconn.Arrays(columns, rows)...)...)
		return err
	}
	for _, r := range rows {
		if _, err := tx.Exec(ctx, text, append([]any{s.cfg.Namespace}, r...)...); err != nil {
			return err
		}
	}
	return nil
}

// maxReason limits a stored reason, in bytes.
const maxReason = 1000

// clean returns reason in a form that a database can store: up to maxReason bytes of valid UTF-8
// without NUL.
func clean(reason string) string {
	return strings.ToValidUTF8(strings.ReplaceAll(reason[:min(len(reason), maxReason)], "\x00", ""), "")
}

package sqlbroker

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/sqlconn"
	"github.com/swarmiji/swarmiji/tx"
)

// joinRows is the largest number of messages in one statement of PublishTx.
const joinRows = 64

// joinRights returns the privileges that the role of the caller's transaction needs.
func (t *texts) joinRights() []string { return []string{"SELECT " + t.table, "INSERT " + t.table} }

// PublishTx implements [broker.TxPublisher]. It stores the messages by statements of t, a
// transaction of the Broker's database. On PostgreSQL the role of t needs USAGE on the schema, and
// SELECT and INSERT on swarmiji_message, and on swarmiji_fair_message for fair queues. There
// consumers are notified 5, 50 and 500 ms after the call, and find the messages of a later commit
// at their next poll. On SQLite the commit itself wakes them.
//
// The queues must exist; see Declare. If a queue is not known yet, the Broker's own connection
// looks for it. On SQLite that waits for at most a second. It returns ErrUnavailable if the tables
// do not exist and t holds the lock to make them.
func (b *Broker) PublishTx(ctx context.Context, t tx.Tx, ms []broker.Outgoing) error {
	if len(ms) == 0 {
		return nil
	}
	rows := make([]row, len(ms))
	at := 0 // the message in question, for the text of an error
	ready := func(ctx context.Context) error {
		if err := b.checkOpen(ms[0].Queue); err != nil {
			return err
		}
		if err := b.ready(ctx); err != nil {
			return err
		}
		for i := range ms {
			at = i
			var err error
			if rows[i], err = b.prepare(ctx, ms[i]); err != nil {
				return err
			}
		}
		return nil
	}
	err := b.conn.Beside(ctx, ready)
	if err == nil {
		var rights []string
		for _, text := range []*texts{b.text, b.fairText} {
			if slices.ContainsFunc(rows, func(r row) bool { return r.q.text == text }) {
				rights = append(rights, text.joinRights()...)
			}
		}
		err = b.conn.Join(ctx, t, b.ready, rights, func(ctx context.Context, j *sqlconn.Tx) error {
			return b.insertJoined(ctx, j, rows)
		})
	}
	return wrap(err, "publish in a transaction to", ms[at].Queue)
}

// insertJoined stores rows in the caller's transaction, which j has joined, up to joinRows with one
// statement. Consumers of the queues are notified as PublishTx describes. Returns errors of the
// database. The parameters of the statements are only numbers, texts and bytes, not arrays.
func (b *Broker) insertJoined(ctx context.Context, j *sqlconn.Tx, rows []row) error {
	topics := make(map[*queue]bool)
	for i := range rows {
		if q := rows[i].q; !topics[q] {
			topics[q] = true
			j.Notify(q.topic)
		}
	}
	for _, text := range []*texts{b.text, b.fairText} {
		own := slices.DeleteFunc(slices.Clone(rows), func(r row) bool { return r.q.text != text })
		for part := range slices.Chunk(own, joinRows) {
			var args []any
			for i := range part {
				args = append(args, part[i].values()...)
			}
			if _, err := j.Exec(ctx, insertText(j.Dialect(), text.fair, len(part)), args...); err != nil {
				return err
			}
		}
	}
	return nil
}

// insertText returns a statement that inserts n messages of fair queues or of others. Its
// parameters are those of texts.insert, once for each message.
func insertText(d sqlconn.Dialect, fair bool, n int) string {
	later, bytes := "greatest", "bytea"
	if d == sqlconn.SQLite {
		later, bytes = "max", "blob"
	}
	var text strings.Builder
	text.WriteString(insertInto(fair) + "VALUES ")
	next := 0
	param := func(kind string) string {
		next++
		return fmt.Sprintf("CAST($%d AS %s)", next, kind)
	}
	for i := range n {
		if i > 0 {
			text.WriteString(", ")
		}
		values := []string{param("bigint"), param("bigint")}
		due := param("bigint") + " + " + param("bigint") + " * " + d.Now()
		values = append(values, later+"("+due+", "+d.Now()+")")
		for _, kind := range []string{"text", "bigint", "bigint", "bigint", "text", bytes, bytes} {
			values = append(values, param(kind))
		}
		if fair {
			values = append(values, param("text"), param("bigint"), due+" <= "+d.Now())
		}
		text.WriteString("(" + strings.Join(values, ", ") + ")")
	}
	text.WriteString(unlessSame)
	return text.String()
}

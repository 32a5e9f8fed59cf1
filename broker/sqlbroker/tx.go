package sqlbroker

import (
	"context"
	"fmt"
	"strings"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/sqlconn"
	"github.com/swarmiji/swarmiji/tx"
)

// joinRows is the largest number of messages in one statement of PublishTx.
const joinRows = 64

// joinRights are the privileges that the role of the caller's transaction needs.
var joinRights = []string{"SELECT swarmiji_message", "INSERT swarmiji_message"}

// PublishTx implements [broker.TxPublisher]. It stores the messages by statements of t, a
// transaction of the Broker's database. On PostgreSQL the role of t needs USAGE on the schema, and
// SELECT and INSERT on swarmiji_message. There consumers are notified 5, 50 and 500 ms after the
// call, and find the messages of a later commit at their next poll. On SQLite the commit itself
// wakes them.
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
	err := b.conn.Join(ctx, t, ready, joinRights, func(ctx context.Context, j *sqlconn.Tx) error {
		return b.insertJoined(ctx, j, rows)
	})
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
	for begin := 0; begin < len(rows); begin += joinRows {
		part := rows[begin:min(begin+joinRows, len(rows))]
		args := make([]any, 0, len(part)*len(insertColumns))
		for i := range part {
			args = append(args, part[i].values()...)
		}
		if _, err := j.Exec(ctx, insertText(j.Dialect(), len(part)), args...); err != nil {
			return err
		}
	}
	return nil
}

// insertText returns a statement that inserts n messages. Its parameters are those of texts.insert,
// once for each message.
func insertText(d sqlconn.Dialect, n int) string {
	later, bytes := "greatest", "bytea"
	if d == sqlconn.SQLite {
		later, bytes = "max", "blob"
	}
	var text strings.Builder
	text.WriteString(insertInto + "VALUES ")
	next := 0
	param := func(kind string) string {
		next++
		return fmt.Sprintf("CAST($%d AS %s)", next, kind)
	}
	for i := range n {
		if i > 0 {
			text.WriteString(", ")
		}
		values := []string{param("bigint"), param("bigint"), ""}
		values[2] = later + "(" + param("bigint") + " + " + param("bigint") + " * " + d.Now() + ", " + d.Now() + ")"
		for _, kind := range []string{"text", "bigint", "bigint", "bigint", "text", bytes, bytes} {
			values = append(values, param(kind))
		}
		text.WriteString("(" + strings.Join(values, ", ") + ")")
	}
	text.WriteString(unlessSame)
	return text.String()
}

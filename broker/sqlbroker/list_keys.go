package sqlbroker

import (
	"context"
	"errors"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/sqlconn"
)

// ListKeys implements [broker.KeyLister]. It reads all messages of the queue from the cursor on, as
// Stats does. Held is always known. It waits for the database.
//
// Returns ErrMalformed for an invalid name or a queue that is not fair, and ErrNoQueue if the queue
// does not exist. Returns ErrClosed after Close, and errors of the database.
func (b *Broker) ListKeys(ctx context.Context, name, cursor string, limit int) (p broker.KeyPage, err error) {
	var q *queue
	if err = b.checkOpen(name); err == nil {
		q, err = b.readQueue(ctx, name)
	}
	if err == nil && q.turns == nil {
		err = broker.NotFair(name, "keys")
	}
	if err != nil {
		return broker.KeyPage{}, wrap(err, "list the keys of", name)
	}
	if limit <= 0 {
		limit = broker.DefaultPage
	}
	limit = min(limit, broker.MaxPage)
	err = b.view(ctx, func(ctx context.Context, tx *sqlconn.Tx) error {
		p = broker.KeyPage{}
		var used int64
		if err := tx.Row(ctx, q.text.usedOf, q.id).Scan(&used); err != nil {
			return err
		}
		p.Used = timeOf(used)
		rows, err := tx.Query(ctx, q.text.listKeys, q.id, cursor, limit+1)
		if err != nil {
			return err
		}
		for rows.Next() {
			var k broker.KeyState
			var due, used int64
			if err := rows.Scan(&k.Key, &k.Ready, &k.Held, &due, &used); err != nil {
				return err
			}
			k.Oldest, k.Used = timeOf(due), timeOf(used)
			p.Keys = append(p.Keys, k)
		}
		return errors.Join(rows.Err(), rows.Close())
	})
	if len(p.Keys) > limit {
		p.Next = p.Keys[limit].Key
		p.Keys = p.Keys[:limit]
	}
	return p, wrap(err, "list the keys of", name)
}

// timeOf returns a time of the database, or the zero time for 0.
func timeOf(us int64) time.Time {
	if us == 0 {
		return time.Time{}
	}
	return time.UnixMicro(us)
}

package sqloutbox

import (
	"context"
	"errors"

	"github.com/swarmiji/swarmiji/internal/sqlconn"
	"github.com/swarmiji/swarmiji/outbox"
)

const (
	// waitingText returns $3 waiting messages, the oldest first: all, or with $2 above 0 those that
	// fail.
	waitingText = `SELECT id, generation, queue, order_key, stored, failures, retry, reason FROM swarmiji_outbox
		WHERE namespace = $1 AND retry >= $2 ORDER BY seq LIMIT $3`
	// dropFailing deletes the failing messages of the id $2.
	dropFailing = `DELETE FROM swarmiji_outbox WHERE namespace = $1 AND id = $2 AND retry > 0`
)

// Waiting implements [outbox.Inspector]: it returns up to most waiting messages, the oldest first,
// and if failing is true only those that fail. It waits for the database and returns the errors of
// view.
func (s *Store) Waiting(ctx context.Context, failing bool, most int) ([]outbox.WaitingMessage, error) {
	var all []outbox.WaitingMessage
	err := s.view(ctx, "waiting", func(ctx context.Context, tx *sqlconn.Tx) error {
		all = nil
		retry := 0
		if failing {
			retry = 1
		}
		rows, err := tx.Query(ctx, waitingText, s.cfg.Namespace, retry, most)
		if err != nil {
			return err
		}
		for rows.Next() {
			var m outbox.WaitingMessage
			var stored, next int64
			if err := rows.Scan(&m.ID, &m.Generation, &m.Queue, &m.OrderKey, &stored, &m.Failures, &next, &m.Reason); err != nil {
				return err
			}
			m.At, m.Next = sqlconn.Time(stored), sqlconn.Time(next)
			all = append(all, m)
		}
		return errors.Join(rows.Err(), rows.Close())
	})
	return all, err
}

// Drop implements [outbox.Inspector]: one transaction deletes messages that are dead or fail,
// notifies the relays, and returns the number of messages. It waits for the database and returns
// the errors of update.
func (s *Store) Drop(ctx context.Context, ids ...string) (n int, err error) {
	err = s.update(ctx, "drop", func(ctx context.Context, tx *sqlconn.Tx) error {
		n = 0
		for _, id := range ids {
			for _, text := range []string{s.text.drop, dropFailing} {
				changed, err := tx.Exec(ctx, text, s.cfg.Namespace, id)
				if err != nil {
					return err
				}
				n += int(changed)
			}
		}
		tx.Notify(s.topic) // a dropped message stops its key no longer
		return nil
	})
	return n, err
}

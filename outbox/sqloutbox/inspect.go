package sqloutbox

import (
	"context"
	"errors"
	"time"

	"github.com/swarmiji/swarmiji/internal/sqlconn"
	"github.com/swarmiji/swarmiji/outbox"
)

// Stats implements [outbox.Inspector]: it counts the messages and the live relays. It waits for the
// database and returns the errors of view.
func (s *Store) Stats(ctx context.Context) (st outbox.Stats, err error) {
	err = s.view(ctx, "stats", func(ctx context.Context, tx *sqlconn.Tx) error {
		st = outbox.Stats{}
		var oldest int64
		if err := tx.Row(ctx, s.text.stats, s.cfg.Namespace).Scan(&st.Waiting, &oldest, &st.Failing, &st.Dead, &st.Relays); err != nil {
			return err
		}
		st.Oldest = time.Duration(max(oldest, 0)) * time.Microsecond
		if st.Failing == 0 {
			return nil
		}
		err := tx.Row(ctx, s.text.reason, s.cfg.Namespace).Scan(&st.Reason)
		if errors.Is(err, sqlconn.ErrNoRows) { // it was sent in the meantime
			return nil
		}
		return err
	})
	return st, err
}

// Dead implements [outbox.Inspector]: it returns up to most dead messages, the oldest first. It
// waits for the database and returns the errors of view.
func (s *Store) Dead(ctx context.Context, most int) ([]outbox.DeadMessage, error) {
	var all []outbox.DeadMessage
	err := s.view(ctx, "dead", func(ctx context.Context, tx *sqlconn.Tx) error {
		all = nil
		rows, err := tx.Query(ctx, s.text.letters, s.cfg.Namespace, most)
		if err != nil {
			return err
		}
		for rows.Next() {
			var m outbox.DeadMessage
			var died int64
			if err := rows.Scan(&m.ID, &m.Generation, &m.Queue, &m.OrderKey, &m.Size, &died, &m.Reason); err != nil {
				return err
			}
			m.At = sqlconn.Time(died)
			all = append(all, m)
		}
		return errors.Join(rows.Err(), rows.Close())
	})
	return all, err
}

// Requeue implements [outbox.Inspector]: one transaction puts dead messages back, notifies the
// relays, and returns their number. It waits for the database and returns the errors of update.
//
// A message stays dead while another one with its id, generation and queue waits in the outbox. Of
// several such dead messages, one call puts back the oldest.
func (s *Store) Requeue(ctx context.Context, ids ...string) (n int, err error) {
	err = s.update(ctx, "requeue", func(ctx context.Context, tx *sqlconn.Tx) error {
		n = 0
		for _, id := range ids {
			back, err := s.requeue(ctx, tx, id)
			if err != nil {
				return err
			}
			n += back
		}
		tx.Notify(s.topic)
		return nil
	})
	return n, err
}

// requeue does the work of Requeue for one id in transaction tx. It locks the dead messages, and
// waits for transactions that hold them or that submit such a message. It returns the number of
// messages that it put back, and the errors of its statements.
func (s *Store) requeue(ctx context.Context, tx *sqlconn.Tx, id string) (n int, err error) {
	dead, err := s.deadRows(ctx, tx, id)
	if err != nil {
		return 0, err
	}
	for _, seq := range dead {
		back, err := tx.Exec(ctx, s.text.back, s.cfg.Namespace, seq)
		if err != nil {
			return 0, err
		}
		if back == 0 { // such a message waits
			continue
		}
		if _, err := tx.Exec(ctx, s.text.revived, s.cfg.Namespace, seq); err != nil {
			return 0, err
		}
		n++
	}
	return n, nil
}

// deadRows returns the numbers of the dead messages with this id, the oldest first, and locks them
// until the transaction ends. It waits for transactions that hold them. It returns the errors of
// its statement.
func (s *Store) deadRows(ctx context.Context, tx *sqlconn.Tx, id string) (dead []int64, err error) {
	rows, err := tx.Query(ctx, s.text.deadRows, s.cfg.Namespace, id)
	if err != nil {
		return nil, err
	}
	for rows.Next() {
		var seq int64
		if err := rows.Scan(&seq); err != nil {
			return nil, err
		}
		dead = append(dead, seq)
	}
	return dead, errors.Join(rows.Err(), rows.Close())
}

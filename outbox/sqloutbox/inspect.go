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
func (s *Store) Requeue(ctx context.Context, ids ...string) (int, error) {
	return s.each(ctx, "requeue", ids, s.text.back, s.text.drop)
}

// each executes the statements with each id in one transaction, and notifies the relays. It returns
// the number of rows that the last statement changed, for all ids together. It waits for the
// database and returns the errors of update; what names the operation.
func (s *Store) each(ctx context.Context, what string, ids []string, statements ...string) (n int, err error) {
	err = s.update(ctx, what, func(ctx context.Context, tx *sqlconn.Tx) error {
		n = 0
		for _, id := range ids {
			var changed int64
			for _, text := range statements {
				if changed, err = tx.Exec(ctx, text, s.cfg.Namespace, id); err != nil {
					return err
				}
			}
			n += int(changed)
		}
		tx.Notify(s.topic)
		return nil
	})
	return n, err
}

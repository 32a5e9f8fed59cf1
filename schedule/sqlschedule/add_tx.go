package sqlschedule

import (
	"context"

	"github.com/swarmiji/swarmiji/internal/sqlconn"
	"github.com/swarmiji/swarmiji/schedule"
	"github.com/swarmiji/swarmiji/tx"
)

// addRights are the privileges that the role of the caller's transaction needs.
var addRights = []string{
	"SELECT swarmiji_schedule_entry", "INSERT swarmiji_schedule_entry", "UPDATE swarmiji_schedule_entry", "SELECT swarmiji_schedule_claim",
}

// AddTx implements [schedule.TxAdder]: it is Add in a transaction of the caller on the Store's
// database. On PostgreSQL the role of the transaction needs USAGE on the schema, SELECT, INSERT and
// UPDATE on swarmiji_schedule_entry and SELECT on swarmiji_schedule_claim. Watchers are notified 5,
// 50 and 500 ms after the call.
//
// On SQLite it waits for at most a second for missing tables. Errors are wrapped by wrap.
func (s *Store) AddTx(ctx context.Context, t tx.Tx, entries []schedule.Entry) ([]bool, error) {
	if err := checkEntries(entries); err != nil || len(entries) == 0 {
		return nil, err
	}
	var added []bool
	err := s.conn.Join(ctx, t, s.ready, addRights, func(ctx context.Context, j *sqlconn.Tx) (err error) {
		added, err = inChunks(entries, func(part []schedule.Entry) ([]bool, error) {
			fresh, known, err := s.insert(ctx, j, part)
			if err == nil && len(known) > 0 {
				_, err = s.setDue(ctx, j, known)
			}
			return fresh, err
		})
		return err
	})
	if err != nil {
		return nil, s.wrap("add in a transaction", err)
	}
	return added, nil
}

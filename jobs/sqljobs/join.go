package sqljobs

import (
	"context"
	"fmt"
	"time"

	"github.com/swarmiji/swarmiji/internal/sqlconn"
	"github.com/swarmiji/swarmiji/jobs/jobstore"
	callers "github.com/swarmiji/swarmiji/tx"
)

// joinRights are the privileges that the role of the caller's transaction needs.
var joinRights = []string{
	"SELECT swarmiji_jobs", "INSERT swarmiji_jobs", "SELECT swarmiji_job_name", "INSERT swarmiji_job_name",
	"INSERT swarmiji_job_message", "SELECT swarmiji_deferral",
}

// JoinTx implements [jobstore.Joiner]. On PostgreSQL the role of the transaction needs USAGE on the
// schema. On swarmiji_jobs and swarmiji_job_name it needs SELECT and INSERT, on
// swarmiji_job_message INSERT, and on swarmiji_deferral SELECT.
//
// On PostgreSQL the store's own connection adds new names before. Otherwise all others that create
// the first job of a name would wait for the caller's commit. On SQLite it waits for at most a
// second for missing tables.
func (s *Store) JoinTx(ctx context.Context, t callers.Tx, names []string, fn func(ctx context.Context, tx jobstore.Tx) error) error {
	ready := func(ctx context.Context) error {
		if err := s.ready(ctx); err != nil {
			return err
		}
		return s.addJoined(ctx, names)
	}
	err := s.conn.Join(ctx, t, ready, joinRights, func(ctx context.Context, c *sqlconn.Tx) error {
		if !s.lite {
			var level string
			var now int64
			asked := time.Now()
			if err := c.Row(ctx, "SELECT current_setting('transaction_isolation'), "+c.Dialect().Now()).Scan(&level, &now); err != nil {
				return err
			}
			s.clock.set(now, asked)
			if level != "read committed" {
				return fmt.Errorf("%w: the transaction is %s, and a job in a transaction of the caller needs READ COMMITTED to see what was committed before", jobstore.ErrUnsupported, level)
			}
		}
		j := &tx{use: use{joined: true}, s: s, c: c}
		err := fn(ctx, j)
		if err == nil {
			err = j.err
		}
		return err
	})
	return wrap("transaction of the caller", err)
}

// addJoined adds names of jobs by the store's own connection, each once in the life of the store.
func (s *Store) addJoined(ctx context.Context, names []string) error {
	if s.lite {
		return nil // it has one writer, which is the caller
	}
	for _, name := range names {
		if _, known := s.joined.Load(name); known {
			continue
		}
		if err := s.Update(ctx, func(ctx context.Context, t jobstore.Tx) error {
			own := t.(*tx) //nolint:forcetypeassert // Update passes it
			return own.fail("names", own.addNames(ctx, []string{name}))
		}); err != nil {
			return err
		}
		s.joined.Store(name, true)
	}
	return nil
}

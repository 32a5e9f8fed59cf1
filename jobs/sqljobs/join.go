package sqljobs

import (
	"context"
	"fmt"
	"slices"
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

// JoinTx runs fn once in t, a transaction of the caller, which it neither commits nor rolls back.
// names are the names of the jobs that fn creates. It implements [jobstore.Joiner], which lists the
// errors.
//
// On PostgreSQL the role of the transaction needs USAGE on the schema. On swarmiji_jobs and
// swarmiji_job_name it needs SELECT and INSERT, on swarmiji_job_message INSERT, and on
// swarmiji_deferral SELECT. The store's own connection adds missing names before. Otherwise all
// others that create the first job of a name would wait for the caller's commit.
//
// On SQLite it waits for at most a second for missing tables.
func (s *Store) JoinTx(ctx context.Context, t callers.Tx, names []string, fn func(ctx context.Context, tx jobstore.Tx) error) error {
	err := s.conn.Join(ctx, t, s.ready, joinRights, func(ctx context.Context, c *sqlconn.Tx) error {
		if !s.lite {
			if err := s.prepareJoined(ctx, c, names); err != nil {
				return err
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

// prepareJoined reads the server's time in c, a transaction of a caller on PostgreSQL, and stores
// it in s.clock. It adds those of the names that the table of names lacks, in a transaction of the
// store's own connection, which it commits.
//
// Returns ErrUnsupported for an isolation level other than READ COMMITTED, and ErrUnavailable
// without a free connection for the names. Returns errors of the database.
func (s *Store) prepareJoined(ctx context.Context, c *sqlconn.Tx, names []string) error {
	var level string
	var now, known int64
	asked := time.Now()
	keys := make([]int64, len(names))
	for i, name := range names {
		keys[i] = lockKey(nameLock, name)
	}
	if err := c.Row(ctx, s.text.join, names, keys).Scan(&level, &now, &known); err != nil {
		return err
	}
	s.clock.set(now, asked)
	if level != "read committed" {
		return fmt.Errorf("%w: the transaction is %s, and a job in a transaction of the caller needs READ COMMITTED to see what was committed before", jobstore.ErrUnsupported, level)
	}
	if int(known) == len(names) {
		return nil
	}
	return s.conn.Beside(ctx, func(ctx context.Context) error {
		return s.Update(ctx, func(ctx context.Context, t jobstore.Tx) error {
			own := t.(*tx) //nolint:forcetypeassert // Update passes it
			return own.fail("names", own.addNames(ctx, slices.Clone(names)))
		})
	})
}

package sqljobs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/swarmiji/swarmiji/internal/sqlconn"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/internal/testwait"
	"github.com/swarmiji/swarmiji/jobs/jobstore"
)

// ownURL creates an empty PostgreSQL database and returns its URL.
func ownURL(t *testing.T) string {
	t.Helper()
	dsn, err := testserver.RequirePostgres(t).Database(t.Context(), testserver.Namespace())
	if err != nil {
		t.Fatal(err)
	}
	return dsn
}

// knownNames reads the new names and returns those that match the pattern. It adds them to the
// cache.
func (s *Store) knownNames(t *testing.T, pattern string) (names []string) {
	t.Helper()
	if err := s.View(t.Context(), func(ctx context.Context, tx jobstore.Tx) (err error) {
		names, err = matchingNames(ctx, tx, pattern)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	slices.Sort(names)
	return names
}

func matchingNames(ctx context.Context, in jobstore.Tx, pattern string) ([]string, error) {
	t := in.(*tx)
	names, _, err := t.matching(ctx, t.s.names.of(pattern))
	return names, err
}

func newJob(name string) *jobstore.Row {
	return &jobstore.Row{Job: jobstore.Job{Name: name, State: jobstore.Waiting, Data: []byte("{}")}}
}

// saveJob creates a job.
func (s *Store) saveJob(t *testing.T, name string) {
	t.Helper()
	if err := s.Update(t.Context(), func(ctx context.Context, tx jobstore.Tx) error { return tx.Save(ctx, newJob(name)) }); err != nil {
		t.Fatal(err)
	}
}

// TestNamesBesideAHeldTransaction shows that a process reads each new name once while another
// transaction stays open. After the commit it reads the name that this transaction added.
func TestNamesBesideAHeldTransaction(t *testing.T) {
	dsn := ownURL(t)
	watch, worker := opened(t, dsn), opened(t, dsn)
	s, end := openedAlone(t, dsn)
	s.knownNames(t, "*")
	begun, commit, ended := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	held := opened(t, dsn+"&idle_in_transaction_session_timeout=0")
	go func() {
		ended <- held.Update(context.Background(), func(ctx context.Context, tx jobstore.Tx) error {
			if err := tx.Save(ctx, newJob("held")); err != nil {
				return err
			}
			close(begun)
			<-commit
			return nil
		})
	}()
	<-begun
	const many = 300
	for i := range many {
		worker.saveJob(t, fmt.Sprint("name-", i))
		if names := s.knownNames(t, "*"); len(names) != i+1 {
			t.Fatalf("%d names of %d are known", len(names), i+1)
		}
	}
	close(commit)
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if names := s.knownNames(t, "h*"); len(names) != 1 {
		t.Errorf("the name of the transaction that was open for long is not known: %v", names)
	}
	end()
	var read int64
	testwait.Until(t, "the server counts what was read", func() bool {
		err := watch.conn.View(t.Context(), func(ctx context.Context, tx *sqlconn.Tx) error {
			return tx.Row(ctx, "SELECT coalesce(idx_tup_fetch, 0) + seq_tup_read FROM pg_stat_user_tables WHERE relname = 'swarmiji_job_name'").Scan(&read)
		})
		return err == nil && read >= many
	})
	if read > 10*many { // reading all names each time would be fifteen times that
		t.Errorf("%d names were read for %d that came one by one, beside an open transaction", read, many)
	}
}

// TestOwnNames shows that a process finds a name that its own transaction added after it had read
// the names.
func TestOwnNames(t *testing.T) {
	for kind, dsn := range map[string]string{"sqlite": "sqlite:" + t.TempDir() + "/jobs.db", "postgres": ownURL(t)} {
		t.Run(kind, func(t *testing.T) {
			s, worker := opened(t, dsn), opened(t, dsn)
			s.knownNames(t, "*")
			if err := s.Update(t.Context(), func(ctx context.Context, tx jobstore.Tx) error {
				err := tx.Save(ctx, newJob("own-1"))
				if !s.lite { // SQLite has one writer
					worker.saveJob(t, "other")
				}
				_, err2 := matchingNames(ctx, tx, "*")
				return errors.Join(err, err2, tx.Save(ctx, newJob("own-2")))
			}); err != nil {
				t.Fatal(err)
			}
			if names := s.knownNames(t, "own*"); !slices.Equal(names, []string{"own-1", "own-2"}) {
				t.Errorf("the names are %v", names)
			}
		})
	}
}

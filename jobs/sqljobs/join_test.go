package sqljobs_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/internal/sqlconn/sqltest"
	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/tx"
)

// eachService runs a test with a service over a database of each kind, whose tables exist.
func eachService(t *testing.T, test func(ctx context.Context, t *testing.T, s *jobs.Service, dsn string)) {
	t.Helper()
	each(t, func(t *testing.T, dsn string) {
		s, err := jobs.New(jobs.Config{Store: open(t, dsn)})
		if err != nil {
			t.Fatal(err)
		}
		ctx := bound(t)
		if _, err := s.Create(ctx, jobs.Spec{Name: "first"}); err != nil {
			t.Fatal(err)
		}
		test(ctx, t, s, dsn)
		if err := s.Close(ctx); err != nil {
			t.Error(err)
		}
	})
}

// createTx creates a job in a transaction and fails the test after an error.
func createTx(ctx context.Context, t *testing.T, s *jobs.Service, own sqltest.Transaction, spec jobs.Spec) jobs.ID {
	t.Helper()
	made, err := s.CreateTx(ctx, own.Tx, spec)
	if err != nil || made.ID == 0 || made.Existed {
		t.Fatalf("CreateTx gives %+v, %v", made, err)
	}
	return made.ID
}

func finish(t *testing.T, end func() error) {
	t.Helper()
	if err := end(); err != nil {
		t.Fatal(err)
	}
}

// A job of CreateTx exists after the commit, with all its fields, and only then. Watchers hear of
// it.
func TestCreateTx(t *testing.T) {
	eachService(t, func(ctx context.Context, t *testing.T, s *jobs.Service, dsn string) {
		store := open(t, dsn)
		heard := make(chan struct{}, 1)
		defer store.Watch(func(names []string) {
			if names == nil || slices.Contains(names, `a "name", {x\}`) {
				select {
				case heard <- struct{}{}:
				default:
				}
			}
		})()
		spec := jobs.Spec{Name: `a "name", {x\}`, Data: []byte(`{"n":1}`), UniqueKey: `k"\`, Key: "answer,{}"}
		own := sqltest.Begin(t, dsn)
		id := createTx(ctx, t, s, own, spec)
		if _, err := s.Query(ctx, id); !errors.Is(err, jobs.ErrNotFound) {
			t.Errorf("Query before the commit: %v", err)
		}
		finish(t, own.Rollback)
		if _, err := s.Query(ctx, id); !errors.Is(err, jobs.ErrNotFound) {
			t.Errorf("Query after the rollback: %v", err)
		}
		own = sqltest.BeginSQL(t, dsn)
		id = createTx(ctx, t, s, own, spec)
		finish(t, own.Commit)
		for found := false; !found; {
			select {
			case <-heard: // the first notifications may come before the commit
				_, err := s.Query(ctx, id)
				found = err == nil
			case <-ctx.Done():
				t.Fatal("the watcher is not called after the commit")
			}
		}
		j, err := s.Query(ctx, id)
		if err != nil || j.Name != spec.Name || string(j.Data) != string(spec.Data) || j.Key != spec.Key || j.UniqueKey != spec.UniqueKey || j.State != jobs.Queued {
			t.Errorf("the job is %+v, %v", j, err)
		}
		own = sqltest.Begin(t, dsn)
		taken, ok := errors.AsType[*jobs.KeyTakenError](second(s.CreateTx(ctx, own.Tx, jobs.Spec{Name: spec.Name, UniqueKey: spec.UniqueKey})))
		if !ok || taken.Job != id {
			t.Errorf("a second job with the key: %v", taken)
		}
		id = createTx(ctx, t, s, own, jobs.Spec{Name: "other"}) // the transaction continues
		finish(t, own.Commit)
		if _, err := s.Query(ctx, id); err != nil {
			t.Error(err)
		}
	})
}

func second[A, B any](_ A, b B) B { return b }

// untouched is a transaction in which no statement may run.
type untouched struct{ t *testing.T }

func (u untouched) Exec(_ context.Context, query string, _ ...any) (int64, error) {
	u.t.Errorf("a statement ran: %s", query)
	return 0, errors.New("refused")
}

func (u untouched) Query(_ context.Context, query string, _ ...any) (tx.Rows, error) {
	u.t.Errorf("a statement ran: %s", query)
	return nil, errors.New("refused")
}

// Jobs that would lock other jobs are refused before any statement.
func TestCreateTxRefused(t *testing.T) {
	eachService(t, func(ctx context.Context, t *testing.T, s *jobs.Service, _ string) {
		for name, spec := range map[string]jobs.Spec{
			"sequence": {Name: "n", SequenceKey: "k"}, "parent": {Name: "n", Parent: 1}, "unique": {Name: "n", Unique: true},
		} {
			if _, err := s.CreateTx(ctx, untouched{t}, spec); !errors.Is(err, jobs.ErrUnsupported) {
				t.Errorf("%s: %v, want ErrUnsupported", name, err)
			}
		}
		if _, err := s.CreateTx(ctx, untouched{t}, jobs.Spec{Name: ""}); !errors.Is(err, jobs.ErrBadJob) {
			t.Errorf("without a name: %v", err)
		}
		own := sqltest.Begin(t, fileURL(t))
		if _, err := s.CreateTx(ctx, own.Tx, jobs.Spec{Name: "n"}); !errors.Is(err, jobs.ErrUnsupported) {
			t.Errorf("in a transaction of another database: %v", err)
		}
	})
}

// CreateTx waits for no lock of a key, so that it takes part in no deadlock. It refuses isolation
// levels that do not see the commits before.
func TestCreateTxLocks(t *testing.T) {
	ctx, dsn := bound(t), postgresURL(t)
	s, err := jobs.New(jobs.Config{Store: open(t, dsn)})
	if err != nil {
		t.Fatal(err)
	}
	one, two := sqltest.Begin(t, dsn), sqltest.Begin(t, dsn)
	createTx(ctx, t, s, one, jobs.Spec{Name: "n", UniqueKey: "a"})
	createTx(ctx, t, s, two, jobs.Spec{Name: "n", UniqueKey: "b"})
	_, err = s.CreateTx(ctx, one.Tx, jobs.Spec{Name: "n", UniqueKey: "b"})
	if !errors.Is(err, jobs.ErrUnavailable) || !strings.Contains(err.Error(), "another transaction") {
		t.Errorf("a key that another transaction has locked: %v", err)
	}
	_, err = s.CreateTx(ctx, two.Tx, jobs.Spec{Name: "n", UniqueKey: "a"})
	if !errors.Is(err, jobs.ErrUnavailable) {
		t.Errorf("the other key: %v", err)
	}
	finish(t, two.Rollback)
	createTx(ctx, t, s, one, jobs.Spec{Name: "n", UniqueKey: "b"})
	finish(t, one.Commit)
	two = sqltest.Begin(t, dsn)
	if _, err := two.Tx.Exec(ctx, "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ"); err != nil {
		t.Fatal(err)
	}
	if _, err = s.CreateTx(ctx, two.Tx, jobs.Spec{Name: "n"}); !errors.Is(err, jobs.ErrUnsupported) || !strings.Contains(err.Error(), "READ COMMITTED") {
		t.Errorf("REPEATABLE READ: %v", err)
	}
	finish(t, two.Commit)
	if err := s.Close(ctx); err != nil {
		t.Error(err)
	}
}

// A key that an open transaction has locked delays only the calls that need it: their changes leave
// the transaction that they share with others.
func TestCreateBesideTransaction(t *testing.T) {
	ctx, dsn := bound(t), postgresURL(t)
	s, err := jobs.New(jobs.Config{Store: open(t, dsn)})
	if err != nil {
		t.Fatal(err)
	}
	own := sqltest.Begin(t, dsn)
	createTx(ctx, t, s, own, jobs.Spec{Name: "n", Key: "a"})
	taken := make(chan error, 4)
	for range cap(taken) {
		go func() { taken <- second(s.Create(ctx, jobs.Spec{Name: "n", Key: "a"})) }()
	}
	for i, begun := 0, time.Now(); time.Since(begun) < 3*time.Second; i++ {
		short, cancel := context.WithTimeout(ctx, 10*time.Second)
		if _, err := s.Create(short, jobs.Spec{Name: "n", Key: fmt.Sprint("other ", i)}); err != nil {
			t.Fatalf("Create number %d with another key: %v", i, err)
		}
		cancel()
		<-time.After(10 * time.Millisecond) // more calls show no more
	}
	finish(t, own.Commit)
	for range cap(taken) {
		if err := <-taken; !errors.As(err, new(*jobs.KeyTakenError)) {
			t.Errorf("Create with the key: %v, want a KeyTakenError", err)
		}
	}
	if err := s.Close(ctx); err != nil {
		t.Error(err)
	}
}

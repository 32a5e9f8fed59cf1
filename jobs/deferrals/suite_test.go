package deferrals_test

import (
	"context"
	"log/slog"
	"net/url"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/swarmiji/swarmiji/deferral"
	"github.com/swarmiji/swarmiji/deferral/deferraltest"
	"github.com/swarmiji/swarmiji/internal/sqlconn/sqltest"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/jobs/deferrals"
	"github.com/swarmiji/swarmiji/jobs/jobstest"
	"github.com/swarmiji/swarmiji/jobs/jobstore"
	"github.com/swarmiji/swarmiji/jobs/memjobs"
	"github.com/swarmiji/swarmiji/jobs/sqljobs"
	"github.com/swarmiji/swarmiji/task"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction(testserver.Reaper))
}

// TestStore runs the suite over every store of jobs. In two variants each transaction runs twice;
// in one the store has no optional interfaces.
func TestStore(t *testing.T) {
	t.Run("memory", func(t *testing.T) { run(t, memory) })
	t.Run("again", func(t *testing.T) {
		run(t, func(t testing.TB) func(testing.TB) jobs.Store {
			opens := memory(t)
			return func(t testing.TB) jobs.Store { return jobstest.Again(jobstest.Bare(opens(t))) }
		})
	})
	t.Run("sqlite", func(t *testing.T) {
		run(t, func(t testing.TB) func(testing.TB) jobs.Store {
			u := url.URL{Scheme: "sqlite", Path: filepath.Join(t.TempDir(), "jobs.db")}
			return func(t testing.TB) jobs.Store { return openSQL(t, u.String()) }
		})
	})
	t.Run("postgres", func(t *testing.T) {
		run(t, func(t testing.TB) func(testing.TB) jobs.Store {
			p, schema := testserver.RequirePostgres(t), testserver.Namespace()
			if err := p.Exec(t.Context(), "postgres", "CREATE SCHEMA "+schema); err != nil {
				t.Fatal(err)
			}
			return func(t testing.TB) jobs.Store { return openSQL(t, p.URL()+"&schema="+schema) }
		})
	})
}

func memory(t testing.TB) func(testing.TB) jobs.Store {
	first, err := memjobs.New(memjobs.Config{})
	if err != nil {
		t.Fatal(err)
	}
	return func(t testing.TB) jobs.Store {
		s := first.Join()
		closeLast(t, s)
		return s
	}
}

func openSQL(t testing.TB, dsn string) jobs.Store {
	s, err := sqljobs.New(sqljobs.Config{DB: sqltest.Open(t, dsn)})
	if err != nil {
		t.Fatal(err)
	}
	closeLast(t, s)
	return s
}

// closeLast closes c at the end of the test.
func closeLast(t testing.TB, c interface{ Close(context.Context) error }) {
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
		defer cancel()
		if err := c.Close(ctx); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
}

func run(t *testing.T, place func(testing.TB) func(testing.TB) jobs.Store) {
	deferraltest.Run(t, func(t testing.TB) *deferraltest.Harness {
		opens := place(t)
		store := opens(t)
		s := service(t, store)
		return &deferraltest.Harness{
			Open:    func(t testing.TB) deferral.Store { return kept(t, service(t, opens(t))) },
			Advance: func(t testing.TB, d time.Duration) { advance(t, store, d) },
			Purge:   func(ctx context.Context) error { _, err := s.Purge(ctx); return err },
			Answer: func(ctx context.Context, name, key, result, refusal string) (deferraltest.Receipt, error) {
				got, err := s.AnswerAll(ctx, []jobs.Answer{{Name: name, Key: key, Result: []byte(result), Refusal: refusal}})
				if err != nil {
					return "", err
				}
				return deferraltest.Receipt(got[0].Kind), nil
			},
		}
	})
}

func service(t testing.TB, store jobs.Store) *jobs.Service {
	s, err := jobs.New(jobs.Config{Store: store, EarlyFor: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	closeLast(t, s)
	return s
}

func kept(t testing.TB, s *jobs.Service) *deferrals.Store {
	d, err := deferrals.New(deferrals.Config{Jobs: s, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// advance moves the times of all deferrals of the suite back by d.
func advance(t testing.TB, store jobs.Store, d time.Duration) {
	t.Helper()
	err := store.Update(t.Context(), func(ctx context.Context, tx jobstore.Tx) error {
		found, err := tx.Deferrals(ctx, "t1", "t2", "t3", "t4", "t5", "t6", "t7", "t8", "t9")
		if err != nil {
			return err
		}
		saved := make([]*jobstore.Deferral, len(found))
		for i := range found {
			saved[i] = &found[i]
			for _, at := range []*time.Time{&found[i].Deadline, &found[i].Due, &found[i].Expires} {
				if !at.IsZero() {
					*at = at.Add(-d)
				}
			}
		}
		return tx.SaveDeferrals(ctx, saved...)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestConfig shows that New returns an error for an invalid configuration.
func TestConfig(t *testing.T) {
	if _, err := deferrals.New(deferrals.Config{Retention: -1}); err == nil {
		t.Error("no error")
	}
	if _, err := deferrals.New(deferrals.Config{Jobs: service(t, memory(t)(t)), Retention: 2 * task.MaxTimeLimit}); err == nil {
		t.Error("no error")
	}
}

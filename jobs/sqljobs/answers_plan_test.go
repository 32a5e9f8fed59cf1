package sqljobs

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/internal/sqlconn"
	"github.com/swarmiji/swarmiji/internal/sqlconn/sqltest"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/internal/testwait"
	"github.com/swarmiji/swarmiji/jobs/jobstore"
	"github.com/swarmiji/swarmiji/task"
)

// TestPlansOfAnswers checks SQLite's query plans for early answers and deferrals. Each query uses
// its index and reads due rows in their order.
func TestPlansOfAnswers(t *testing.T) {
	ctx := t.Context()
	u := url.URL{Scheme: "sqlite", Path: filepath.Join(t.TempDir(), "jobs.db")}
	s := opened(t, u.String())
	texts := &s.text.answers
	for _, c := range []struct {
		text, index string
		args        []any
	}{
		{texts.early, "PRIMARY KEY (name=? AND key=?)", []any{"n", "k"}},
		{texts.deleteEarly, "PRIMARY KEY (name=? AND key=?)", []any{"n", "k"}},
		{texts.expireEarly, "swarmiji_early_answer_expires (expires<?)", []any{1, 9, 9}},
		{texts.openDeferral, "swarmiji_deferral_key (name=? AND key=? AND expires=?)", []any{"n", "k"}},
		{texts.lastDeferral, "swarmiji_deferral_key (name=? AND key=? AND expires>?)", []any{"n", "k"}},
		{texts.deferrals, "sqlite_autoindex_swarmiji_deferral_1 (task=?)", []any{"[]"}},
		{texts.dueDeferrals, "swarmiji_deferral_due (queue=? AND due<?)", []any{"q", 1, 9}},
		{texts.awaiting, "sqlite_autoindex_swarmiji_deferral_1 (task>?)", []any{"q", "t", 9}},
		{texts.expireMany, "swarmiji_deferral_expires (expires<?)", []any{1, 9}},
	} {
		var plan []string
		if err := s.conn.View(ctx, func(ctx context.Context, tx *sqlconn.Tx) error {
			plan = nil
			rows, err := tx.Query(ctx, "EXPLAIN QUERY PLAN "+c.text, c.args...)
			if err != nil {
				return err
			}
			for rows.Next() {
				var id, parent, unused int64
				var step string
				if err := rows.Scan(&id, &parent, &unused, &step); err != nil {
					return err
				}
				plan = append(plan, step)
			}
			return errors.Join(rows.Err(), rows.Close())
		}); err != nil {
			t.Fatalf("%v\n%s", err, c.text)
		}
		all := strings.Join(plan, "\n")
		if !strings.Contains(all, c.index) || strings.Contains(all, "B-TREE FOR ORDER") || strings.Contains(all, "SCAN d\n") || strings.Contains(all, "SCAN swarmiji") {
			t.Errorf("%s is not answered by %s:\n%s", c.text, c.index, all)
		}
	}
}

// TestPlansOfAnswersForAnEmptyTable shows that PostgreSQL reads only the rows that it returns,
// although the tables were empty when it made the plans.
func TestPlansOfAnswersForAnEmptyTable(t *testing.T) {
	p, schema := testserver.RequirePostgres(t), testserver.Namespace()
	if err := p.Exec(t.Context(), "postgres", "CREATE SCHEMA "+schema); err != nil {
		t.Fatal(err)
	}
	dsn := p.URL() + "&schema=" + schema
	watching := opened(t, dsn)
	s, end := openedAlone(t, dsn)
	if err := watching.conn.Update(t.Context(), func(ctx context.Context, tx *sqlconn.Tx) error {
		_, err := tx.Exec(ctx, "ANALYZE swarmiji_deferral")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	const rows = 3000
	now := time.Now()
	var all []*jobstore.Deferral
	for i := range rows {
		d := &jobstore.Deferral{
			Task: task.ID(fmt.Sprintf("t%06d", i)), Queue: fmt.Sprint("q", i%3), Name: "n", Key: fmt.Sprint("k", i%1000), Phase: jobstore.DeferralOver,
			Expires: now.Add(time.Duration(i-100) * time.Second),
		}
		if i >= 2000 {
			d.Phase, d.Due, d.Expires = jobstore.DeferralAwaiting, now.Add(time.Duration(i-2100)*time.Second), time.Time{}
		}
		all = append(all, d)
	}
	if err := s.Update(t.Context(), func(ctx context.Context, tx jobstore.Tx) error { return tx.SaveDeferrals(ctx, all...) }); err != nil {
		t.Fatal(err)
	}
	end()
	before := deferralsRead(t, watching)
	s, end = openedAlone(t, dsn)
	const rounds = 10
	for range rounds {
		if err := s.Update(t.Context(), func(ctx context.Context, tx jobstore.Tx) error {
			open, err := tx.DeferralOf(ctx, "n", "k500")
			last, err2 := tx.DeferralOf(ctx, "none", "k500")
			some, err3 := tx.Deferrals(ctx, "t000001", "t000002", "none")
			due, err4 := tx.DueDeferrals(ctx, "q1", now, 5)
			scanned, err5 := tx.AwaitingDeferrals(ctx, "q1", "t002500", 5)
			gone, err6 := tx.ExpireDeferrals(ctx, now, 2)
			if open == nil || !open.Open() || last != nil || len(some) != 2 || len(due) != 5 || len(scanned) != 5 || gone != 2 {
				return fmt.Errorf("found %v, %v, %d, %d, %d, %d", open, last, len(some), len(due), len(scanned), gone)
			}
			return errors.Join(err, err2, err3, err4, err5, err6, errVainly)
		}); !errors.Is(err, errVainly) {
			t.Fatal(err)
		}
	}
	end()
	var n int64
	testwait.Until(t, "the server counts what was read", func() bool {
		n = deferralsRead(t, watching) - before
		return n >= 15*rounds
	})
	if n > 60*rounds {
		t.Errorf("%d rows were read in %d rounds that each answer with 15", n, rounds)
	}
}

var errVainly = errors.New("in vain")

// opened returns a store with its tables. It is closed at the end of the test.
func opened(t *testing.T, dsn string) *Store {
	t.Helper()
	s, end := openedAlone(t, dsn)
	t.Cleanup(end)
	return s
}

// openedAlone returns a store with its tables, and a function that closes it and its database.
// PostgreSQL counts the reads of a session when the session ends.
func openedAlone(t *testing.T, dsn string) (s *Store, end func()) {
	t.Helper()
	db := sqltest.Open(t, dsn)
	s, err := New(Config{DB: db})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s, func() {
		t.Helper()
		if err := errors.Join(s.Close(context.Background()), db.Close(context.Background())); err != nil {
			t.Fatal(err)
		}
	}
}

func deferralsRead(t *testing.T, s *Store) (n int64) {
	t.Helper()
	if err := s.conn.View(t.Context(), func(ctx context.Context, tx *sqlconn.Tx) error {
		return tx.Row(ctx, "SELECT idx_tup_fetch + seq_tup_read FROM pg_stat_user_tables WHERE relid = CAST(' swarmiji_deferral' AS regclass)").Scan(&n)
	}); err != nil {
		t.Fatal(err)
	}
	return n
}

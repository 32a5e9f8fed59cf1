package sqljobs_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/internal/sqlconn"
	"github.com/swarmiji/swarmiji/internal/sqlconn/sqltest"
	"github.com/swarmiji/swarmiji/internal/testwait"
	"github.com/swarmiji/swarmiji/jobs/jobstest"
	"github.com/swarmiji/swarmiji/jobs/jobstore"
	"github.com/swarmiji/swarmiji/jobs/sqljobs"
	"github.com/swarmiji/swarmiji/task"
)

// TestPlansForAnEmptyTable shows that a claim does not read all jobs when the server's plans are
// for an empty table. A server that has seen an empty table keeps such plans until it analyzes the
// table again, about a minute later.
func TestPlansForAnEmptyTable(t *testing.T) {
	dsn := postgresURL(t)
	conn := sqltest.Conn(t, dsn)
	defer func() {
		if err := conn.Close(bound(t)); err != nil {
			t.Error(err)
		}
	}()
	s, end := openAlone(t, dsn)
	const rows = 3000
	fill := func() {
		var list []*jobstore.Row
		for i := range rows {
			j := job(fmt.Sprintf("name-%d", i%100), i%6, time.Now().Add(-time.Hour))
			if i/100%2 == 1 {
				j.Queue, j.Weight, j.Key, j.UniqueKey = fmt.Sprint("queue-", i%3), 1000, fmt.Sprint("key-", i), fmt.Sprint("key-", i)
				switch i % 30 {
				case 1:
					j.State, j.Due, j.Expires = jobstore.Failed, time.Time{}, time.Now().Add(-time.Duration(i)*time.Second)
				case 4:
					j.State = jobstore.Running
				}
			}
			list = append(list, j)
		}
		save(t, s, list...)
	}
	fill()
	if err := s.Update(bound(t), func(ctx context.Context, tx jobstore.Tx) error {
		ids := make([]jobstore.ID, rows)
		for i := range ids {
			ids[i] = jobstore.ID(i + 1)
		}
		return tx.Delete(ctx, ids...)
	}); err != nil {
		t.Fatal(err)
	}
	if err := conn.Update(bound(t), func(ctx context.Context, tx *sqlconn.Tx) error {
		_, err := tx.Exec(ctx, "ANALYZE swarmiji_jobs")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	fill()
	end()
	before := tuplesRead(t, conn)
	s, end = openAlone(t, dsn)
	const takes = 10
	for i := range takes {
		for _, sel := range []jobstore.Selector{{Names: []string{fmt.Sprintf("name-%d", i)}}, {Pattern: "*"}, {Pattern: "name-9?"}} {
			var got []jobstore.Row
			if err := s.Single(bound(t), func(ctx context.Context, tx jobstore.Tx) (err error) {
				got, _, err = tx.(jobstore.Taker).Take(ctx, jobstore.Due{Selector: sel}, 1, 0)
				return err
			}); err != nil || len(got) != 1 {
				t.Fatalf("%d jobs, %v", len(got), err)
			}
		}
		askQueues(t, s, 200*i+105)
	}
	end()
	read := tuplesRead(t, conn) - before
	if read < 3*takes {
		t.Errorf("%d rows were read: the server has not counted them", read)
	}
	if read > takes*rows/10 { // a tenth of reading all rows once per round
		t.Errorf("%d rows were read to hand out %d of %d jobs, and to find as many by their queues and keys", read, 3*takes, rows)
	}
}

// askQueues runs the queries of queues and keys, in transactions that lock. n is a job with a key.
func askQueues(t *testing.T, s *sqljobs.Store, n int) {
	t.Helper()
	line := func(l jobstore.Line) jobstest.Query {
		l.Queue = "queue-1"
		return jobstest.Query{Page: jobstore.Page{Limit: 1}, Line: &l}
	}
	after := &jobstore.Row{Job: jobstore.Job{Priority: 2}, Due: time.Now().Add(-time.Hour - 10*time.Second)}
	key := fmt.Sprint("key-", n)
	if err := s.Update(bound(t), func(ctx context.Context, tx jobstore.Tx) error {
		for i, c := range []struct {
			q    jobstest.Query
			want int
		}{
			{line(jobstore.Line{State: jobstore.Queued}), 1},
			{line(jobstore.Line{State: jobstore.Queued, After: after, MaxWeight: task.Set[int64](1000)}), 1},
			{line(jobstore.Line{State: jobstore.Queued, MaxWeight: task.Set[int64](999)}), 0},
			{line(jobstore.Line{State: jobstore.Queued, Order: jobstore.PriorityFirst}), 1},
			{line(jobstore.Line{State: jobstore.Queued, Order: jobstore.PriorityFirst, After: after, MaxWeight: task.Set[int64](1000)}), 1},
			{line(jobstore.Line{State: jobstore.Queued, Order: jobstore.PriorityFirst, MaxWeight: task.Set[int64](999)}), 0},
			{line(jobstore.Line{State: jobstore.Running}), 1},
			{jobstest.Query{Name: fmt.Sprint("name-", n%100), Key: key}, 1},
			{jobstest.Query{Page: jobstore.Page{Limit: 1}, Group: &jobstore.Group{By: jobstore.ByUniqueKey, Name: fmt.Sprint("name-", n%100), Key: key}}, 1},
			{jobstest.Query{Page: jobstore.Page{Limit: 1}, Group: &jobstore.Group{By: jobstore.ByName, Name: "name-4"}}, 1},
			{jobstest.Query{Page: jobstore.Page{States: []jobstore.State{jobstore.Waiting}, Limit: 500}}, 0},
			{jobstest.Query{Page: jobstore.Page{States: []jobstore.State{jobstore.Failed}, Limit: 1}}, 1},
			{jobstest.Query{Page: jobstore.Page{States: []jobstore.State{jobstore.RunQueued}, Limit: 1}}, 0},
			{jobstest.Query{Page: jobstore.Page{States: []jobstore.State{jobstore.Running, jobstore.RunQueued}, Limit: 1}, Name: "name-4"}, 1},
			{jobstest.Query{Page: jobstore.Page{After: 4000, Limit: 1}, Queue: "queue-1"}, 1},
		} {
			if found, err := c.q.Find(ctx, tx); err != nil || len(found) != c.want {
				return fmt.Errorf("question %d: %d jobs, %w", i, len(found), err)
			}
		}
		_, _, err := tx.(jobstore.Weigher).Weigh(ctx, "queue-1")
		return err
	}); err != nil {
		t.Fatal(err)
	}
}

// tuplesRead returns the number of rows of the jobs table that all ended sessions have read. It
// waits until conn has the only session, because a session adds its counters when it
// ends.
func tuplesRead(t *testing.T, conn *sqlconn.Conn) (n int64) {
	t.Helper()
	testwait.Until(t, "the other sessions have ended", func() bool {
		var others int
		if err := conn.View(bound(t), func(ctx context.Context, tx *sqlconn.Tx) error {
			const sessions = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()"
			if err := tx.Row(ctx, sessions).Scan(&others); err != nil || others > 0 {
				return err
			}
			return tx.Row(ctx, "SELECT idx_tup_fetch + seq_tup_read FROM pg_stat_user_tables WHERE relid = CAST(' swarmiji_jobs' AS regclass)").Scan(&n)
		}); err != nil {
			t.Fatal(err)
		}
		return others == 0
	})
	return n
}

// TestPlansOfSQLite shows that queries by state and by queue read an index in the order of ids.
func TestPlansOfSQLite(t *testing.T) {
	dsn := fileURL(t)
	crowd(t, dsn, 10)
	conn := sqltest.Conn(t, dsn)
	defer func() {
		if err := conn.Close(bound(t)); err != nil {
			t.Error(err)
		}
	}()
	for what, want := range map[string]string{
		"a state nobody is in":     "SEARCH j USING INDEX swarmiji_job_rest (state=? AND rowid>?)",
		"who runs, of a name":      "SEARCH j USING INDEX swarmiji_job_runs (name=? AND rowid>?)",
		"the end of a queue by id": "SEARCH j USING INDEX swarmiji_job_queue_id (queue=? AND rowid>?)",
	} {
		text, args := sqljobs.Statement(seldom()[what])
		if err := conn.View(bound(t), func(ctx context.Context, tx *sqlconn.Tx) error {
			rows, err := tx.Query(ctx, "EXPLAIN QUERY PLAN "+text, args...)
			if err != nil {
				return err
			}
			defer rows.Close()
			var plan []string
			for rows.Next() {
				var id, parent, unused int
				var detail string
				if err := rows.Scan(&id, &parent, &unused, &detail); err != nil {
					return err
				}
				// the states in the query
				if !strings.Contains(detail, "json_each") && !strings.HasPrefix(detail, "LIST SUBQUERY") && detail != "CREATE BLOOM FILTER" {
					plan = append(plan, detail)
				}
			}
			if len(plan) != 1 || plan[0] != want {
				t.Errorf("%s: %q, want %q", what, plan, want)
			}
			return rows.Err()
		}); err != nil {
			t.Fatal(err)
		}
	}
}

package sqljobs

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/internal/sqlconn"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/jobs/jobstore"
)

// TestPlansOfKeys checks the query plans of both databases for jobs of a sequence, a parent or a
// key among many finished jobs. The plans use the index of key and state, with both as its
// condition.
func TestPlansOfKeys(t *testing.T) {
	kept := 5000
	if testserver.IsThorough() {
		kept = 1_000_000
	}
	open := jobstore.Page{States: []jobstore.State{jobstore.Queued, jobstore.RunQueued, jobstore.Running, jobstore.Paused, jobstore.Waiting}, Limit: 1}
	queries := []struct {
		q              query
		index          string
		lite, postgres string // the condition in the plan
	}{
		{query{Page: open, parent: 1}, indexParent, "parent=? AND state=?", "parent ="},
		{query{Page: jobstore.Page{Limit: 1}, parent: 1}, indexParent, "parent=? AND state=?", "parent ="},
		{query{Page: open, name: "n", key: "k"}, indexAnswer, "name=? AND answer_key=? AND state=?", "answer_key ="},
		{query{Page: jobstore.Page{States: []jobstore.State{jobstore.Failed, jobstore.Finished}, Limit: 1}, name: "n", key: "k", last: true}, indexAnswer, "name=? AND answer_key=? AND state=?", "answer_key ="},
	}
	groups := []struct {
		by             jobstore.GroupBy
		index          string
		lite, postgres string
	}{
		{jobstore.BySequence, indexSequence, "sequence_key=? AND state=?", "sequence_key ="},
		{jobstore.ByKey, indexAnswer, "name=? AND answer_key=? AND state=?", "answer_key ="},
		{jobstore.ByUniqueKey, indexUnique, "name=? AND unique_key=? AND state=?", "unique_key ="},
		{jobstore.ByName, "swarmiji_job_name_id", "name=?", "(name <= g.name)"},
	}
	check := func(t *testing.T, s *Store) {
		fillKept(t, s, kept)
		for _, c := range queries {
			b := builder{lite: s.lite}
			text, condition := b.find(c.q), c.lite
			if !s.lite {
				condition = c.postgres
			}
			checkPlan(t, s, c.index, condition, text, b.args...)
		}
		for _, c := range groups {
			condition, args := c.postgres, []any{[]string{"n", "m"}, []string{"k", "l"}, []string{"QUEUED", "WAITING"}}
			if s.lite {
				condition, args = c.lite, []any{"n", "k", `["QUEUED","WAITING"]`}
			}
			checkPlan(t, s, c.index, condition, s.text.groups.first[c.by], args...)
		}
		for _, text := range []string{s.text.expireJobs, s.text.expireMessages} {
			if text == "" {
				continue
			}
			if plan := explain(t, s, text, 1, 500); !strings.Contains(plan, "swarmiji_job_expires") || strings.Contains(plan, "Seq Scan") || strings.Contains(plan, "SCAN j\n") {
				t.Errorf("expired jobs are not found by their index:\n%s", plan)
			}
		}
	}
	t.Run("sqlite", func(t *testing.T) { check(t, opened(t, "sqlite:"+filepath.Join(t.TempDir(), "jobs.db"))) })
	t.Run("postgres", func(t *testing.T) {
		p, schema := testserver.RequirePostgres(t), testserver.Namespace()
		if err := p.Exec(t.Context(), "postgres", "CREATE SCHEMA "+schema); err != nil {
			t.Fatal(err)
		}
		check(t, opened(t, p.URL()+"&schema="+schema))
	})
}

// checkPlan fails the test unless the statement uses the index and scans no table. If the index
// contains the state, its condition must contain the state.
func checkPlan(t *testing.T, s *Store, index, condition, text string, args ...any) {
	t.Helper()
	plan := explain(t, s, text, args...)
	for line := range strings.Lines(plan) {
		if strings.Contains(line, index) && s.lite && !strings.Contains(line, condition) {
			t.Errorf("%s: %s", index, line)
		}
		if cond, ok := strings.CutPrefix(strings.TrimSpace(line), "Index Cond: "); ok && !strings.Contains(cond, "(id = ANY") &&
			(!strings.Contains(cond, condition) || !strings.Contains(cond, "state =") && index != "swarmiji_job_name_id") {
			t.Errorf("%s: %s", index, line)
		}
	}
	if !strings.Contains(plan, index) || strings.Contains(plan, "Seq Scan") || strings.Contains(plan, "SCAN j\n") || strings.Contains(plan, "SCAN swarmiji") {
		t.Errorf("%s does not answer:\n%s\n%s", index, text, plan)
	}
}

// fillKept stores n finished jobs with one sequence, parent, key and unique key.
func fillKept(t *testing.T, s *Store, n int) {
	t.Helper()
	now := time.Now()
	for from := 0; from < n; from += 5000 {
		list := make([]*jobstore.Row, min(5000, n-from))
		for i := range list {
			list[i] = &jobstore.Row{Job: jobstore.Job{
				Name: "n", State: jobstore.Finished, Data: []byte("{}"), Created: now, SequenceKey: "k", Parent: 1, Key: "k", UniqueKey: "k", Expires: now.Add(time.Hour),
			}}
		}
		if err := s.Update(t.Context(), func(ctx context.Context, tx jobstore.Tx) error { return tx.Save(ctx, list...) }); err != nil {
			t.Fatal(err)
		}
	}
	if !s.lite {
		if err := s.conn.Update(t.Context(), func(ctx context.Context, c *sqlconn.Tx) error {
			_, err := c.Exec(ctx, "ANALYZE swarmiji_jobs")
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
}

// explain returns the query plan of a statement, one step per line.
func explain(t *testing.T, s *Store, text string, args ...any) string {
	t.Helper()
	var plan strings.Builder
	if err := s.conn.View(t.Context(), func(ctx context.Context, c *sqlconn.Tx) error {
		plan.Reset()
		how := "EXPLAIN "
		if s.lite {
			how = "EXPLAIN QUERY PLAN "
		}
		rows, err := c.Query(ctx, how+text, args...)
		if err != nil {
			return err
		}
		for rows.Next() {
			var id, parent, unused int64
			var step string
			to := []any{&step}
			if s.lite {
				to = []any{&id, &parent, &unused, &step}
			}
			if err := rows.Scan(to...); err != nil {
				return err
			}
			fmt.Fprintln(&plan, step)
		}
		return errors.Join(rows.Err(), rows.Close())
	}); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return plan.String()
}

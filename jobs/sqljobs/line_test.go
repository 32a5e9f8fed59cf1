package sqljobs

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/internal/sqlconn"
	"github.com/swarmiji/swarmiji/internal/sqlconn/sqltest"
	"github.com/swarmiji/swarmiji/jobs/jobstest"
	"github.com/swarmiji/swarmiji/jobs/jobstore"
	"github.com/swarmiji/swarmiji/task"
)

// TestPlansOfLines checks SQLite's query plans for queues and keys. Each query has its index, and
// the jobs of a queue are read in their order.
func TestPlansOfLines(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	s, err := New(Config{DB: sqltest.Open(t, "sqlite://"+filepath.ToSlash(filepath.Join(t.TempDir(), "jobs.db")))})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(ctx); err != nil {
			t.Error(err)
		}
	}()
	if err := s.ready(ctx); err != nil {
		t.Fatal(err)
	}
	after := &jobstore.Row{Job: jobstore.Job{ID: 1}, Due: time.Now()}
	const sorts = "USE TEMP B-TREE FOR ORDER BY"
	for _, c := range []struct {
		q     jobstest.Query
		index string
		sorts bool
	}{
		{jobstest.Query{Line: &jobstore.Line{Queue: "q", State: jobstore.Queued}}, "swarmiji_job_queue (queue=? AND state=? AND queue_due<?)", false},
		{jobstest.Query{Line: &jobstore.Line{Queue: "q", State: jobstore.Queued, After: after, MaxWeight: task.Set[int64](1)}}, "swarmiji_job_queue (queue=? AND state=? AND queue_due>? AND queue_due<?)", false},
		{jobstest.Query{Line: &jobstore.Line{Queue: "q", State: jobstore.Queued, MaxWeight: task.Set[int64](1)}}, "swarmiji_job_light (queue=?)", false},
		{jobstest.Query{Line: &jobstore.Line{Queue: "q", State: jobstore.Queued, Order: jobstore.PriorityFirst}}, "swarmiji_job_line (queue=? AND priority=? AND queue_due", false},
		{jobstest.Query{Line: &jobstore.Line{Queue: "q", State: jobstore.Queued, Order: jobstore.PriorityFirst, After: after}}, "swarmiji_job_line (queue=? AND priority=? AND queue_due", false},
		{jobstest.Query{Line: &jobstore.Line{Queue: "q", State: jobstore.Running}}, "swarmiji_job_queue (queue=? AND state=? AND queue_due<?)", false},
		{jobstest.Query{Page: jobstore.Page{States: []jobstore.State{jobstore.Running}}, Queue: "q"}, "swarmiji_job_queue (queue=? AND state=?)", true},
	} {
		b := builder{lite: true}
		text := ""
		if c.q.Line != nil {
			text = b.line(c.q.Line, 9, time.Now().UnixMicro(), "")
		} else {
			text = b.find(asQuery(c.q))
		}
		var plan []string
		if err := s.conn.View(ctx, func(ctx context.Context, tx *sqlconn.Tx) error {
			plan = nil
			rows, err := tx.Query(ctx, "EXPLAIN QUERY PLAN "+text, b.args...)
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
			return rows.Close()
		}); err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		all := strings.Join(plan, "\n")
		if !strings.Contains(all, c.index) || strings.Contains(all, sorts) != c.sorts || strings.Contains(all, "SCAN swarmiji_jobs") || strings.Contains(all, "SCAN j\n") {
			t.Errorf("%+v is not answered by %s, sorted %v:\n%s", c.q, c.index, c.sorts, all)
		}
	}
}

package sqloutbox_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/swarmiji/swarmiji/internal/sqlconn"
	"github.com/swarmiji/swarmiji/internal/sqlconn/sqltest"
	"github.com/swarmiji/swarmiji/internal/testwait"
	"github.com/swarmiji/swarmiji/outbox/sqloutbox"
)

// TestReadPlan shows that a message behind a stopped key costs one look into the index of such
// keys. With the index of all failed messages, reads took minutes when both were many.
func TestReadPlan(t *testing.T) {
	t.Parallel()
	d, ctx := sqlite(t), testwait.Long(t)
	s := d.open(t)
	rows, err := sqltest.OpenSQL(t, d.url).QueryContext(ctx, "EXPLAIN QUERY PLAN "+sqloutbox.ReadText(s), "default", "[1,2]")
	must(t, err)
	defer func() { must(t, rows.Close()) }()
	plan := ""
	for rows.Next() {
		var id, parent, unused int
		var step string
		must(t, rows.Scan(&id, &parent, &unused, &step))
		plan += step + "\n"
	}
	must(t, rows.Err())
	for _, want := range []string{"stopped (namespace=? AND bucket=? AND order_key=?)", "failed (namespace=? AND bucket=? AND retry>? AND retry<?)"} {
		if !strings.Contains(plan, "swarmiji_outbox_"+want) {
			t.Errorf("%s is missing; the plan is\n%s", want, plan)
		}
	}
}

// TestReadPlanOfOneBucket shows that PostgreSQL reads each bucket by the index of ready messages,
// also if all messages were in one bucket at the last ANALYZE. With the primary key each read
// scanned the whole table 64 times, longer than a relay waits.
func TestReadPlanOfOneBucket(t *testing.T) {
	t.Parallel()
	d, ctx := postgres(t), testwait.Long(t)
	s := d.open(t)
	d.submit(t, s, numbered("m", "key", 300)...)
	_, err := sqltest.OpenSQL(t, d.url).ExecContext(ctx, "ANALYZE swarmiji_outbox")
	must(t, err)
	var plan string
	must(t, sqltest.Conn(t, d.url).View(ctx, func(ctx context.Context, tx *sqlconn.Tx) error {
		plan = ""
		rows, err := tx.Query(ctx, "EXPLAIN "+sqloutbox.ReadText(s), "default", []int64{1, 2})
		if err != nil {
			return err
		}
		for rows.Next() {
			var step string
			if err := rows.Scan(&step); err != nil {
				return err
			}
			plan += step + "\n"
		}
		return errors.Join(rows.Err(), rows.Close())
	}))
	for _, want := range []string{"ready on swarmiji_outbox r ", "failed on swarmiji_outbox r_1 "} {
		if !strings.Contains(plan, "Index Scan using swarmiji_outbox_"+want) {
			t.Errorf("%s is missing; the plan is\n%s", want, plan)
		}
	}
	if n := strings.Count(plan, "(bucket = b"); n != 2 {
		t.Errorf("%d of 2 scans are for one bucket; the plan is\n%s", n, plan)
	}
}

package sqloutbox_test

import (
	"strings"
	"testing"

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
	if !strings.Contains(plan, "swarmiji_outbox_stopped (namespace=? AND bucket=? AND order_key=?)") {
		t.Errorf("the plan is\n%s", plan)
	}
}

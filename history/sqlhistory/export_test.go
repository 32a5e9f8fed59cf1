package sqlhistory

import (
	"context"
	"errors"
	"strings"

	"github.com/swarmiji/swarmiji/history"
	"github.com/swarmiji/swarmiji/internal/sqlconn"
)

// Explain returns how the database executes the first step of a page of q.
func (s *Store) Explain(ctx context.Context, q history.Query) (text string, err error) {
	err = s.view(ctx, "explain", func(ctx context.Context, tx *sqlconn.Tx, ns int64) error {
		limit, begin, err := history.PageOptions{}.Begin(q)
		if err != nil {
			return err
		}
		plan, err := newPlan(ctx, tx, ns, q, begin)
		if err != nil {
			return err
		}
		explain := "EXPLAIN QUERY PLAN "
		if tx.Dialect() == sqlconn.Postgres {
			explain = "EXPLAIN "
		}
		statement, args := plan.pageText(begin, history.MaxExamined/len(plan.driver.arms), limit+1)
		rows, err := tx.Query(ctx, explain+statement, args...)
		if err != nil {
			return err
		}
		var b strings.Builder
		for rows.Next() {
			var line string
			var id, parent, unused int
			if tx.Dialect() == sqlconn.Postgres {
				err = rows.Scan(&line)
			} else {
				err = rows.Scan(&id, &parent, &unused, &line)
			}
			if err != nil {
				return err
			}
			b.WriteString(line + "\n")
		}
		text = b.String()
		return errors.Join(rows.Err(), rows.Close())
	})
	return text, err
}

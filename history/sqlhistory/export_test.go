package sqlhistory

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/swarmiji/swarmiji/history"
	"github.com/swarmiji/swarmiji/internal/sqlconn"
)

// Explain returns how the database executes the first step of a page of q, whatever the values of
// its parameters are.
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
		statement, args := plan.pageText(begin, history.MaxExamined/len(plan.driver.arms), limit+1)
		statement = "EXPLAIN QUERY PLAN " + statement
		if tx.Dialect() == sqlconn.Postgres {
			if _, err := tx.Exec(ctx, strings.Replace(statement, "EXPLAIN QUERY PLAN", "PREPARE explained AS", 1)); err != nil {
				return err
			}
			values := make([]string, len(args))
			for i, v := range args {
				values[i] = "'" + strings.ReplaceAll(fmt.Sprint(v), "'", "''") + "'"
			}
			statement, args = "EXPLAIN EXECUTE explained ("+strings.Join(values, ", ")+")", nil
		}
		rows, err := tx.Query(ctx, statement, args...)
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
		err = errors.Join(rows.Err(), rows.Close())
		if err == nil && tx.Dialect() == sqlconn.Postgres {
			_, err = tx.Exec(ctx, "DEALLOCATE explained")
		}
		return err
	})
	return text, err
}

package sqlbroker

import (
	"context"
	"errors"
	"strings"

	"github.com/swarmiji/swarmiji/internal/sqlconn"
)

// each runs a statement for rows with these columns: once for all on PostgreSQL, once for each on
// SQLite. It returns for each row whether the statement changed something, except that on
// PostgreSQL an INSERT always gives false. It waits for the database and returns its first error.
func (b *Broker) each(ctx context.Context, tx *sqlconn.Tx, query string, columns []string, rows [][]any) ([]bool, error) {
	hit := make([]bool, len(rows))
	if !b.postgres() {
		for i, r := range rows {
			n, err := tx.Exec(ctx, query, r...)
			if err != nil {
				return nil, err
			}
			hit[i] = n > 0
		}
		return hit, nil
	}
	found, err := tx.Query(ctx, query, arrays(columns, rows)...)
	if err != nil {
		return nil, err
	}
	for found.Next() {
		var n int64
		if err := found.Scan(&n); err != nil {
			return nil, err
		}
		hit[n-1] = true
	}
	return hit, errors.Join(found.Err(), found.Close())
}

// arrays returns an array for each column of the rows. A column of type bytea may hold nil.
func arrays(columns []string, rows [][]any) []any {
	args := make([]any, len(columns))
	for c, column := range columns {
		switch _, kind, _ := strings.Cut(column, " "); kind {
		case "bigint":
			args[c] = array[int64](rows, c)
		case "text":
			args[c] = array[string](rows, c)
		default:
			args[c] = array[[]byte](rows, c)
		}
	}
	return args
}

// array returns one column of the rows.
func array[T any](rows [][]any, column int) []T {
	a := make([]T, len(rows))
	for i, r := range rows {
		a[i], _ = r[column].(T)
	}
	return a
}

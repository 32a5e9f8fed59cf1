package sqlbroker

import (
	"context"
	"errors"

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
	found, err := tx.Query(ctx, query, sqlconn.Arrays(columns, rows)...)
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

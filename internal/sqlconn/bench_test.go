package sqlconn_test

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/swarmiji/swarmiji/internal/sqlconn"
	"github.com/swarmiji/swarmiji/internal/testserver"
)

// BenchmarkUpdate lets 32 callers commit one row each, repeatedly. It measures the group commit.
func BenchmarkUpdate(b *testing.B) {
	for kind, dsn := range map[string]func() string{
		"sqlite":   func() string { return liteURL(b) },
		"postgres": func() string { return pgURL(b, testserver.RequirePostgres(b)) },
	} {
		b.Run(kind, func(b *testing.B) {
			c := open(b, sqlconn.Config{URL: dsn()})
			run(b, c, "CREATE TABLE t (id bigint PRIMARY KEY NOT NULL, v text)")
			for name, write := range map[string]func(context.Context, sqlconn.Func) error{"Update": c.Update, "Single": c.Single} {
				b.Run(name, func(b *testing.B) {
					run(b, c, "DELETE FROM t")
					var next atomic.Int64
					b.SetParallelism(16)
					b.ResetTimer()
					b.RunParallel(func(pb *testing.PB) {
						for pb.Next() {
							id := next.Add(1)
							err := write(context.Background(), func(ctx context.Context, tx *sqlconn.Tx) error {
								_, err := tx.Exec(ctx, "INSERT INTO t (id, v) VALUES ($1, 'x')", id)
								return err
							})
							if err != nil {
								b.Error(err)
							}
						}
					})
				})
			}
		})
	}
}

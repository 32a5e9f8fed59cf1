package sqlresults_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/swarmiji/swarmiji/internal/sqlconn/sqltest"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/resultstore/sqlresults"
	"github.com/swarmiji/swarmiji/task"
)

// BenchmarkStore measures 1 and 32 callers that each save and later load records.
func BenchmarkStore(b *testing.B) {
	for kind, dsn := range map[string]func(b *testing.B) string{
		"sqlite":   func(b *testing.B) string { return fileURL(b) },
		"postgres": func(b *testing.B) string { return database(b, testserver.RequirePostgres(b)) },
	} {
		for _, callers := range []int{1, 32} {
			b.Run(fmt.Sprintf("%s/%d", kind, callers), func(b *testing.B) { benchStore(b, dsn(b), callers) })
		}
	}
}

func benchStore(b *testing.B, dsn string, callers int) {
	s := opened(b, sqlresults.Config{DB: sqltest.Open(b, dsn)})
	save(b, s, done("", -1))
	id := func(i int64) task.ID { return task.ID(fmt.Sprint("bench-", i)) }
	// stored records; a benchmark function runs several times with growing numbers
	var saved atomic.Int64
	for _, c := range []struct {
		name string
		call func(ctx context.Context, i int64) error
	}{
		{"save", func(ctx context.Context, _ int64) error {
			r := done("node", 0)
			r.ID = id(saved.Add(1))
			return s.Save(ctx, r)
		}},
		{"load", func(ctx context.Context, i int64) error {
			_, err := s.Load(ctx, id(1+i%saved.Load()))
			return err
		}},
	} {
		b.Run(c.name, func(b *testing.B) {
			var next atomic.Int64
			var wg sync.WaitGroup
			b.ReportAllocs()
			for range callers {
				wg.Go(func() {
					for i := next.Add(1); i <= int64(b.N); i = next.Add(1) {
						if err := c.call(context.Background(), i); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			wg.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "calls/s")
		})
	}
}

package sqlschedule_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/internal/sqlconn/sqltest"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/internal/testwait"
	"github.com/swarmiji/swarmiji/schedule"
	"github.com/swarmiji/swarmiji/schedule/sqlschedule"
)

// BenchmarkTicks processes ticks as a listener does, with 100,000 other entries that are not due:
// Due, Claim and Done for 256 ticks at a time.
func BenchmarkTicks(b *testing.B) {
	for kind, dsn := range map[string]func() string{
		"sqlite": func() string { return fileURL(b) },
		"postgres": func() string {
			u, err := testserver.RequirePostgres(b).Database(testwait.Long(b), testserver.Namespace())
			if err != nil {
				b.Fatal(err)
			}
			return u
		},
	} {
		b.Run(kind, func(b *testing.B) {
			url := dsn()
			s := open(b, sqlschedule.Config{DB: sqltest.Open(b, url)})
			defer func() { _ = s.Close(context.Background()) }()
			add(b, s, "later", 100_000, time.Now().Add(time.Hour))
			add(b, s, "now", b.N, time.Now().Add(-time.Second))
			ctx := context.Background()
			b.ResetTimer()
			for left := b.N; left > 0; {
				batch, err := s.Due(ctx, 256)
				if err != nil {
					b.Fatal(err)
				}
				claims, done := make([]schedule.Claim, len(batch.Ticks)), make([]schedule.Finish, len(batch.Ticks))
				for i, k := range batch.Ticks {
					claims[i], done[i] = schedule.Claim{Tick: k}, schedule.Finish{Tick: k, Remove: true}
				}
				if _, err := s.Claim(ctx, "bench", time.Minute, claims); err != nil {
					b.Fatal(err)
				}
				if _, err := s.Done(ctx, "bench", done); err != nil {
					b.Fatal(err)
				}
				left -= len(claims)
			}
		})
	}
}

func add(tb testing.TB, s *sqlschedule.Store, kind string, n int, next time.Time) {
	tb.Helper()
	entries := make([]schedule.Entry, n)
	for i := range entries {
		payload := fmt.Appendf(nil, `{"args":["%s",%d],"cron":"* * * * 0 0 0","job":"x"}`, kind, i)
		entries[i] = schedule.Entry{ID: schedule.ID(payload), Payload: payload, Next: next}
	}
	if _, err := s.Add(context.Background(), entries); err != nil {
		tb.Fatal(err)
	}
}

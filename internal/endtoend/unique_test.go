package endtoend_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/endtoend"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/open"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/task"
)

// TestUniqueSQL tests the keys of unique tasks in SQL, with brokers that have no store of keys.
func TestUniqueSQL(t *testing.T) {
	rabbit, postgres := testserver.RequireRabbit(t), testserver.RequirePostgres(t)
	noLeaks(t)
	for name, url := range map[string]string{"SQLite": "sqlite://" + t.TempDir() + "/results.db", "PostgreSQL": postgres.URL()} {
		t.Run(name, func(t *testing.T) {
			endtoend.RunUnique(t, func(*testing.T) *endtoend.Harness {
				b, s := at(rabbit.URL()), at(url)
				return &endtoend.Harness{Broker: b.broker, Results: s.results, Events: inMemory().events}
			})
		})
	}
}

// TestUniqueStoreAway shows that a task whose key cannot be claimed is not sent, and the error says
// so.
func TestUniqueStoreAway(t *testing.T) {
	redis, nats, postgres := testserver.RequireRedis(t), testserver.RequireNATS(t), testserver.RequirePostgres(t)
	noLeaks(t)
	for name, server := range map[string]interface {
		URL() string
		Addr() string
	}{"Redis": redis, "NATS": nats, "PostgreSQL": postgres} {
		t.Run(name, func(t *testing.T) {
			line := testserver.NewRelay(t, server.Addr())
			store := opened(t, line.URL(server.URL()), open.Options{Namespace: testserver.Namespace(), Logger: quiet()}, open.Results)
			b := inMemory().broker(t)
			p, err := producer.New(producer.Config{Broker: b, Results: store, Logger: quiet()})
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
				defer cancel()
				if err := errors.Join(p.Close(ctx), store.Close(ctx), b.Close(ctx)); err != nil {
					t.Error(err)
				}
			}()
			unique := []task.Option{task.WithUnique("key", time.Hour), task.WithIgnoreResult(true)}
			first, err := matrixAdd.Submit(t.Context(), p, [2]int{}, unique...)
			if err != nil {
				t.Fatal(err)
			}
			waiting := func(want int) {
				t.Helper()
				if s, err := b.(broker.Inspector).Stats(t.Context(), "default"); err != nil || s.Ready != want {
					t.Errorf("%+v, %v: want %d tasks", s, err, want)
				}
			}
			waiting(1)
			line.SetDown(true)
			short, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, err = matrixAdd.Submit(short, p, [2]int{}, task.WithUnique("other", time.Hour), task.WithIgnoreResult(true))
			if !errors.Is(err, broker.ErrUnavailable) || !errors.Is(err, resultstore.ErrUnavailable) || !strings.Contains(err.Error(), "nothing was sent") {
				t.Errorf("while the store is away: %v", err)
			}
			waiting(1)
			line.SetDown(false)
			again, err := matrixAdd.Submit(t.Context(), p, [2]int{}, unique...)
			if err != nil || again.ID() != first.ID() {
				t.Errorf("when it is back: %v, %v; want task %s", again, err, first.ID())
			}
			waiting(1)
		})
	}
}

package producer_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/broker/sqlbroker"
	"github.com/swarmiji/swarmiji/internal/sqlconn/sqltest"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/internal/testwait"
	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/jobs/sqljobs"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/router"
	"github.com/swarmiji/swarmiji/sqldb/postgres"
	"github.com/swarmiji/swarmiji/task"
	"github.com/swarmiji/swarmiji/tx/pgxtx"
	"github.com/swarmiji/swarmiji/tx/sqltx"
)

// Transactions of the program may hold all connections of its pool. SubmitTx then needs none of
// them, also after a restart of the server.
func TestSubmitTxFullPool(t *testing.T) {
	t.Parallel()
	ctx, srv := testwait.Long(t), testserver.OwnPostgres(t, testserver.PostgresConfig{})
	cfg, err := pgxpool.ParseConfig(srv.URL())
	if err != nil {
		t.Fatal(err)
	}
	cfg.MaxConns = 2
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	db, err := postgres.FromPool(pool, postgres.Config{Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	b, err := sqlbroker.New(sqlbroker.Config{DB: db, Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	store, err := sqljobs.New(sqljobs.Config{DB: db})
	if err != nil {
		t.Fatal(err)
	}
	service, err := jobs.New(jobs.Config{Store: store, Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	p := newProducer(t, producer.Config{Broker: b, Jobs: service, Logger: quiet, Queues: []broker.Queue{{Name: router.DefaultQueue}}})
	defer func() {
		if err := errors.Join(p.Close(ctx), service.Close(ctx), store.Close(ctx), b.Close(ctx), db.Close(ctx)); err != nil {
			t.Error(err)
		}
	}()
	if err := p.Connect(ctx); err != nil {
		t.Fatal(err)
	}
	submit := func(when string, own pgx.Tx) {
		if _, err := number.SubmitTx(ctx, p, pgxtx.Wrap(own), 1); err != nil {
			t.Errorf("%s: SubmitTx: %v", when, err)
		}
		if _, err := number.SubmitTx(ctx, p, pgxtx.Wrap(own), 1, task.WithUniqueKey(testserver.Namespace())); err != nil {
			t.Errorf("%s: SubmitTx with conditions: %v", when, err)
		}
	}
	first := begunAll(ctx, t, pool, 1)[0]
	submit("alone", first) // stores the name of the jobs
	if err := first.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	for _, when := range []string{"before a restart", "after a restart"} {
		all := begunAll(ctx, t, pool, int(cfg.MaxConns))
		var calls sync.WaitGroup
		for _, own := range all {
			calls.Go(func() { submit(when, own) })
		}
		calls.Wait()
		for _, own := range all {
			if err := own.Commit(ctx); err != nil {
				t.Errorf("%s: Commit: %v", when, err)
			}
		}
		srv.Kill()
		if err := srv.Restart(ctx); err != nil {
			t.Fatal(err)
		}
	}
}

// begunAll begins n transactions in a pool.
func begunAll(ctx context.Context, t *testing.T, pool *pgxpool.Pool, n int) []pgx.Tx {
	t.Helper()
	var all []pgx.Tx
	for len(all) < n {
		testwait.UntilNil(t, "a transaction begins", func() error {
			own, err := pool.Begin(ctx)
			if err == nil {
				all = append(all, own)
			}
			return err
		})
	}
	return all
}

// A connection without a transaction is refused, and stays as it was.
func TestSubmitTxWithoutTransaction(t *testing.T) {
	inShop(t, func(ctx context.Context, t *testing.T, s *shop) {
		if _, err := number.SubmitTx(ctx, s.p, sqltx.Wrap(sqltest.OpenSQL(t, s.url)), 1); !errors.Is(err, broker.ErrUnsupported) {
			t.Errorf("SubmitTx: %v, want ErrUnsupported", err)
		}
		f, err := number.Submit(ctx, s.p, 1)
		if err != nil {
			t.Fatal(err)
		}
		if n, err := f.Get(ctx); err != nil || n != 2 {
			t.Errorf("Get of the next task: %d, %v", n, err)
		}
	})
}

// A transaction that has ended is refused. Trying again would not help.
func TestSubmitTxEnded(t *testing.T) {
	inShop(t, func(ctx context.Context, t *testing.T, s *shop) {
		for _, begin := range []func(testing.TB, string) sqltest.Transaction{sqltest.Begin, sqltest.BeginSQL} {
			own := begin(t, s.url)
			if err := own.Commit(); err != nil {
				t.Fatal(err)
			}
			if _, err := number.SubmitTx(ctx, s.p, own.Tx, 1); err == nil || errors.Is(err, broker.ErrUnavailable) {
				t.Errorf("SubmitTx after the commit: %v", err)
			}
		}
	})
}

package consumer_test

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/swarmiji/swarmiji/broker/sqlbroker"
	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/resultstore/sqlresults"
	"github.com/swarmiji/swarmiji/revoke"
	"github.com/swarmiji/swarmiji/sqldb/sqlite"
	"github.com/swarmiji/swarmiji/task"
	"github.com/swarmiji/swarmiji/tx/sqltx"
)

// A handler changes an account and settles its task in one transaction. The account is changed
// exactly once, even if the process dies at any step.
func Example_settleTx() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	check := func(err error) {
		if err != nil {
			panic(err)
		}
	}
	dir, err := os.MkdirTemp("", "settle")
	check(err)
	defer os.RemoveAll(dir)
	file := filepath.ToSlash(filepath.Join(dir, "app.db"))
	db, err := sql.Open("sqlite", "file:"+file+"?_txlock=immediate&_pragma=busy_timeout(5000)")
	check(err)
	defer db.Close()

	handle, err := sqlite.Open(file, sqlite.Config{})
	check(err)
	defer handle.Close(context.Background())
	b, err := sqlbroker.New(sqlbroker.Config{DB: handle})
	check(err)
	defer b.Close(context.Background())
	results, err := sqlresults.New(sqlresults.Config{DB: handle})
	check(err)
	defer results.Close(context.Background())
	p, err := producer.New(producer.Config{Broker: b, Results: results})
	check(err)
	defer p.Close(context.Background())
	quiet := slog.New(slog.DiscardHandler)
	c, err := consumer.New(consumer.Config{Broker: b, Results: results, Revocations: revoke.NewLocal(quiet), Logger: quiet})
	check(err)

	_, err = db.Exec("CREATE TABLE account (balance integer)")
	check(err)
	_, err = db.Exec("INSERT INTO account VALUES (100)")
	check(err)
	deposit := task.New[int, int]("deposit")
	check(deposit.Handle(c, func(ctx context.Context, amount int) (int, error) {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return 0, err
		}
		defer tx.Rollback() // does nothing after the commit
		var balance int
		if err := tx.QueryRowContext(ctx, "UPDATE account SET balance = balance + $1 RETURNING balance", amount).Scan(&balance); err != nil {
			return 0, err
		}
		if err := task.SettleTx(ctx, sqltx.Wrap(tx), balance); err != nil {
			return 0, err
		}
		return balance, tx.Commit()
	}))
	ended := make(chan error)
	go func() { ended <- c.Run(ctx) }()

	f, err := deposit.Submit(ctx, p, 20)
	check(err)
	fmt.Println(f.Get(ctx))
	stop()
	fmt.Println(<-ended)
	// Output:
	// 120 <nil>
	// <nil>
}

package producer_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/swarmiji/swarmiji/open"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/task"
	"github.com/swarmiji/swarmiji/tx/sqltx"
)

// A task of SubmitTx exists if and only if the caller's transaction commits.
func ExampleProducer_SubmitTx() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "order")
	must(err)
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "app.db")
	swarm, err := open.Open(ctx, "sqlite://"+file, open.Options{Logger: quiet})
	must(err)
	p, err := producer.New(producer.Config{Broker: swarm.Broker, Results: swarm.Results})
	must(err)
	must(p.Connect(ctx)) // makes the tables before the first transaction

	// The program has its own connections to the file. Its transactions begin with the write lock.
	db, err := sql.Open("sqlite", "file:"+file+"?_txlock=immediate&_pragma=busy_timeout(5000)")
	must(err)
	_, err = db.ExecContext(ctx, "CREATE TABLE orders (item text)")
	must(err)
	ship := task.New[string, string]("ship")

	order := func(item string, paid bool) *task.Future[string] {
		own, err := db.BeginTx(ctx, nil)
		must(err)
		defer own.Rollback() // does nothing after the commit
		_, err = own.ExecContext(ctx, "INSERT INTO orders (item) VALUES ($1)", item)
		must(err)
		future, err := ship.SubmitTx(ctx, p, sqltx.Wrap(own), item)
		must(err)
		if paid {
			must(own.Commit())
		}
		return future
	}
	order("tea", true)
	future := order("a yacht", false)
	_, err = future.State(ctx)
	fmt.Println("the yacht is not known:", errors.Is(err, task.ErrNotFound))

	for _, query := range []string{"SELECT count(*) FROM orders", "SELECT count(*) FROM swarmiji_message"} {
		var n int
		must(db.QueryRowContext(ctx, query).Scan(&n))
		fmt.Println(n)
	}
	must(errors.Join(p.Close(ctx), swarm.Close(ctx), db.Close()))
	// Output:
	// the yacht is not known: true
	// 1
	// 1
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

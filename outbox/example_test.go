package outbox_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"

	"github.com/swarmiji/swarmiji/broker/membroker"
	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/outbox"
	"github.com/swarmiji/swarmiji/outbox/sqloutbox"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/sqldb/sqlite"
	"github.com/swarmiji/swarmiji/task"
	"github.com/swarmiji/swarmiji/tx/sqltx"
)

var receipt = task.New[int, task.None]("receipt.mail", task.WithIgnoreResult(true))

// A program stores an order and its task in one transaction on its SQLite file. A relay sends the
// task to the broker.
func Example() {
	ctx, stop := context.WithCancel(context.Background())
	dir, err := os.MkdirTemp("", "outbox")
	check(err)
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "app.db")
	handle, err := sqlite.Open(file, sqlite.Config{})
	check(err)
	defer handle.Close(context.Background())
	box, err := sqloutbox.New(sqloutbox.Config{DB: handle})
	check(err)
	defer box.Close(context.Background())
	check(box.Prepare(ctx)) // before the first transaction

	queues := membroker.New()
	defer queues.Close(context.Background())
	c, err := consumer.New(consumer.Config{Broker: queues})
	check(err)
	mailed := make(chan int)
	check(receipt.Handle(c, func(_ context.Context, order int) (task.None, error) {
		mailed <- order
		return task.None{}, nil
	}))
	relay, err := outbox.New(outbox.Config{Store: box, Broker: queues})
	check(err)
	ended := make(chan error, 2)
	go func() { ended <- c.Run(ctx) }()
	go func() { ended <- relay.Run(ctx) }()

	p, err := producer.New(producer.Config{Broker: queues, Outbox: box})
	check(err)
	defer p.Close(context.Background())
	// the program is not the only writer of the file
	db, err := sql.Open("sqlite", file+"?_txlock=immediate&_pragma=busy_timeout(5000)")
	check(err)
	defer db.Close()
	check(purchase(ctx, db, p, 7))

	fmt.Println("mailed", <-mailed)
	stop()
	fmt.Println(<-ended, <-ended)
	// Output:
	// mailed 7
	// <nil> <nil>
}

// purchase stores an order and submits its task in one transaction.
func purchase(ctx context.Context, db *sql.DB, p *producer.Producer, order int) error {
	t, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer t.Rollback() // does nothing after the commit
	if _, err := t.ExecContext(ctx, "CREATE TABLE purchase AS SELECT CAST($1 AS integer) AS id", order); err != nil {
		return err
	}
	if _, err := receipt.SubmitTx(ctx, p, sqltx.Wrap(t), order, task.WithOrderKey("customer 12")); err != nil {
		return err
	}
	return t.Commit()
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

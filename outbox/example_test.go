package outbox_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/broker/membroker"
	"github.com/swarmiji/swarmiji/connect/sqliteconnect"
	"github.com/swarmiji/swarmiji/outbox"
	"github.com/swarmiji/swarmiji/outbox/sqloutbox"
	"github.com/swarmiji/swarmiji/tx/sqltx"
)

// A relay publishes what a program has stored in its own SQLite file.
func Example() {
	ctx, cancel := context.WithCancel(context.Background())
	dir, err := os.MkdirTemp("", "outbox")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	box, err := sqloutbox.New(sqloutbox.Config{
		Engine: sqliteconnect.Engine{}, URL: "sqlite://" + filepath.ToSlash(filepath.Join(dir, "app.db")),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer box.Close(context.Background())
	if err := box.Prepare(ctx); err != nil {
		fmt.Println(err)
		return
	}
	queue := membroker.New()
	defer queue.Close(context.Background())
	relay, err := outbox.New(outbox.Config{Store: box, Broker: queue, Queues: []broker.Queue{{Name: "mail"}}})
	if err != nil {
		fmt.Println(err)
		return
	}
	ended := make(chan error)
	go func() { ended <- relay.Run(ctx) }()

	purchase(ctx, filepath.Join(dir, "app.db"), box)

	s, err := queue.Subscribe(ctx, "mail", broker.SubscribeOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	d, err := s.Receive(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(d.Message().ID, string(d.Message().Body), d.Ack(ctx))
	cancel()
	fmt.Println(<-ended)
	// Output:
	// order-7 thank you <nil>
	// <nil>
}

// purchase stores an order and its message in one transaction.
func purchase(ctx context.Context, file string, box *sqloutbox.Store) {
	db, err := sql.Open("sqlite", file)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer db.Close()
	order, err := db.BeginTx(ctx, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer order.Rollback() // does nothing after the commit
	if _, err := order.ExecContext(ctx, "CREATE TABLE purchase AS SELECT 7 AS id"); err != nil {
		fmt.Println(err)
		return
	}
	m := &broker.Message{ID: "order-7", Body: []byte("thank you")}
	if err := box.PublishTx(ctx, sqltx.Wrap(order), []broker.Outgoing{{Queue: "mail", Message: m}}); err != nil {
		fmt.Println(err)
		return
	}
	if err := order.Commit(); err != nil {
		fmt.Println(err)
	}
}

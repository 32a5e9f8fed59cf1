package sqlbroker_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/broker/sqlbroker"
	"github.com/swarmiji/swarmiji/sqldb/sqlite"
)

// A message waits in a file until a consumer, which may be another process, acknowledges it.
func Example() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "broker")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	db, err := sqlite.Open(filepath.Join(dir, "app.db"), sqlite.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer db.Close(ctx)
	b, err := sqlbroker.New(sqlbroker.Config{DB: db})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer b.Close(ctx)
	s, err := b.Subscribe(ctx, "inbox", broker.SubscribeOptions{Prefetch: 1}) // creates the queue
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := b.Publish(ctx, "inbox", &broker.Message{ID: "1", Body: []byte("dear reader")}); err != nil {
		fmt.Println(err)
		return
	}
	d, err := s.Receive(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(string(d.Message().Body), d.Ack(ctx))
	// Output:
	// dear reader <nil>
}

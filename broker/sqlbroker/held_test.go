package sqlbroker_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/sqlconn/sqltest"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/internal/testwait"
)

// TestPublishBesideTransaction shows that a message whose id an open transaction has stored does
// not delay the messages that are published at the same time.
func TestPublishBesideTransaction(t *testing.T) {
	t.Parallel()
	url, ctx := testserver.RequirePostgres(t).URL(), testwait.Long(t)
	b := open(t, config(t, url, testserver.Namespace()))
	defer func() {
		if err := b.Close(context.Background()); err != nil {
			t.Errorf("Close: %v", err)
		}
	}()
	if err := b.Declare(ctx, broker.Queue{Name: "q"}); err != nil {
		t.Fatal(err)
	}
	own := sqltest.Begin(t, url)
	if err := b.PublishTx(ctx, own.Tx, []broker.Outgoing{{Queue: "q", Message: &broker.Message{ID: "same"}}}); err != nil {
		t.Fatal(err)
	}
	same := make(chan error, 1)
	go func() { same <- b.Publish(ctx, "q", &broker.Message{ID: "same"}) }()
	for i, begun := 0, time.Now(); time.Since(begun) < 3*time.Second; i++ {
		short, cancel := context.WithTimeout(ctx, 10*time.Second)
		if err := b.Publish(short, "q", &broker.Message{ID: testserver.Namespace()}); err != nil {
			t.Fatalf("Publish number %d of another message: %v", i, err)
		}
		cancel()
		<-time.After(10 * time.Millisecond) // more calls show no more
	}
	if err := own.Commit(); err != nil {
		t.Fatal(err)
	}
	if err := <-same; err != nil && !errors.Is(err, broker.ErrUnavailable) {
		t.Errorf("Publish of the same message: %v", err)
	}
}

package sqlbroker_test

import (
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/broker/sqlbroker"
	"github.com/swarmiji/swarmiji/internal/sqlconn/sqltest"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/internal/testwait"
)

// A consumer does not wait for its next poll if another one is making the due messages ready.
func TestFairPromotedByAnother(t *testing.T) {
	url, ctx, namespace := testserver.RequirePostgres(t).URL(), testwait.Long(t), testserver.Namespace()
	b := open(t, config(t, url, namespace))
	fairQueue(ctx, t, b, "q")
	if err := b.PublishAt(ctx, "q", &broker.Message{ID: "a", Key: "k"}, time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	const rows = "WHERE queue = (SELECT id FROM swarmiji_queue WHERE namespace = $1 AND name = 'q')"
	if _, err := sqltest.OpenSQL(t, url).ExecContext(ctx, "UPDATE swarmiji_fair_message SET due = 1 "+rows, namespace); err != nil {
		t.Fatal(err)
	}
	own := sqltest.Begin(t, url)
	if _, err := own.Tx.Exec(ctx, "UPDATE swarmiji_fair_message SET ready = true "+rows, namespace); err != nil {
		t.Fatal(err)
	}
	if wake, err := sqlbroker.WakeOf(ctx, b, "q"); err != nil || wake != 10*time.Millisecond {
		t.Errorf("the consumer looks again after %v, %v", wake, err)
	}
	if err := own.Commit(); err != nil {
		t.Fatal(err)
	}
	received(ctx, t, subscribed(ctx, t, b, "q", 1))
	if err := b.Close(ctx); err != nil {
		t.Error(err)
	}
}

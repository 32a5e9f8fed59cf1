package sqlbroker_test

import (
	"errors"
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

// A message that a transaction has locked does not stop the less urgent levels.
func TestFairLockedLevel(t *testing.T) {
	url, ctx, namespace := testserver.RequirePostgres(t).URL(), testwait.Long(t), testserver.Namespace()
	b := open(t, config(t, url, namespace))
	fairQueue(ctx, t, b, "q", 50, 100)
	if err := b.Publish(ctx, "q", &broker.Message{ID: "urgent", Key: "k", Priority: 1}); err != nil {
		t.Fatal(err)
	}
	own := sqltest.Begin(t, url)
	const lock = "UPDATE swarmiji_fair_message SET weight = 2 WHERE queue = (SELECT id FROM swarmiji_queue WHERE namespace = $1 AND name = 'q')"
	if _, err := own.Tx.Exec(ctx, lock, namespace); err != nil {
		t.Fatal(err)
	}
	published(ctx, t, b, keyed("q", "k", 1, 0, 3)...)
	s := subscribed(ctx, t, b, "q", 1)
	for range 3 {
		d := received(ctx, t, s)
		if d.Message().ID == "urgent" {
			t.Error("received the locked message")
		}
		if err := broker.AckSync(ctx, d); err != nil {
			t.Fatal(err)
		}
	}
	if err := own.Commit(); err != nil {
		t.Fatal(err)
	}
	if d := received(ctx, t, s); d.Message().ID != "urgent" {
		t.Errorf("received %s, want the message that was locked", d.Message().ID)
	}
	if err := b.Close(ctx); err != nil {
		t.Error(err)
	}
}

// A role without rights on the messages of fair queues can use transactions for other queues.
func TestTxRightsOfPlainQueues(t *testing.T) {
	url, ctx := testserver.RequirePostgres(t).URL(), testwait.Long(t)
	b := open(t, config(t, url, testserver.Namespace()))
	fairQueue(ctx, t, b, "fair")
	if err := b.Declare(ctx, broker.Queue{Name: "plain"}); err != nil {
		t.Fatal(err)
	}
	published(ctx, t, b, append(keyed("fair", "k", 1, 0, 1), keyed("plain", "k", 1, 0, 1)...)...)
	db, role := sqltest.OpenSQL(t, url), testserver.Namespace()
	for _, text := range []string{
		"CREATE ROLE " + role, "GRANT USAGE ON SCHEMA public TO " + role,
		"GRANT SELECT, INSERT, DELETE ON swarmiji_message TO " + role,
	} {
		if _, err := db.ExecContext(ctx, text); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
	}
	t.Cleanup(func() { _, _ = db.Exec("DROP OWNED BY " + role + "; DROP ROLE " + role) })
	for queue, want := range map[string]error{"plain": nil, "fair": broker.ErrAccess} {
		d := received(ctx, t, subscribed(ctx, t, b, queue, 1))
		own := sqltest.Begin(t, url)
		if _, err := own.Tx.Exec(ctx, "SET LOCAL ROLE "+role); err != nil {
			t.Fatal(err)
		}
		if err := b.CheckTx(ctx, own.Tx); err != nil {
			t.Errorf("CheckTx: %v", err)
		}
		if err := d.(broker.TxAcker).AckTx(ctx, own.Tx); !errors.Is(err, want) {
			t.Errorf("AckTx in %s: %v, want %v", queue, err, want)
		}
		if err := b.PublishTx(ctx, own.Tx, keyed(queue, "k", 1, 1, 2)); !errors.Is(err, want) {
			t.Errorf("PublishTx to %s: %v, want %v", queue, err, want)
		}
		if err := own.Commit(); err != nil {
			t.Error(err)
		}
	}
	if err := b.Close(ctx); err != nil {
		t.Error(err)
	}
}

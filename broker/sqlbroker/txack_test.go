package sqlbroker_test

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/broker/sqlbroker"
	"github.com/swarmiji/swarmiji/capability"
	"github.com/swarmiji/swarmiji/internal/sqlconn/sqltest"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/internal/testwait"
	"github.com/swarmiji/swarmiji/tx/pgxtx"
)

// held returns deliveries of new messages with these ids, and another Broker of the namespace.
func held(t *testing.T, url string, lease time.Duration, ids ...string) (ds []broker.Delivery, other *sqlbroker.Broker) {
	t.Helper()
	ctx, ns := testwait.Long(t), testserver.Namespace()
	b, other := open(t, config(t, url, ns)), open(t, config(t, url, ns))
	t.Cleanup(func() {
		if err := errors.Join(b.Close(context.Background()), other.Close(context.Background())); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	s, err := b.Subscribe(ctx, "q", broker.SubscribeOptions{Prefetch: len(ids), Lease: lease})
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range ids {
		if err := b.Publish(ctx, "q", &broker.Message{ID: id}); err != nil {
			t.Fatal(err)
		}
	}
	for range ids {
		ds = append(ds, received(ctx, t, s))
	}
	return ds, other
}

func txAcker(t *testing.T, d broker.Delivery) broker.TxAcker {
	t.Helper()
	a, ok := capability.As[broker.TxAcker](d)
	if !ok {
		t.Fatal("the delivery is no TxAcker")
	}
	return a
}

// TestAckTxBesideOthers shows that an open transaction neither loses its message nor delays the
// renewals and settlements of others, however long it is open.
func TestAckTxBesideOthers(t *testing.T) {
	t.Parallel()
	url, ctx := testserver.RequirePostgres(t).URL(), testwait.Long(t)
	const lease = time.Second
	ds, other := held(t, url, lease, "a", "b", "c")
	own := sqltest.Begin(t, url)
	if err := txAcker(t, ds[0]).AckTx(ctx, own.Tx); err != nil {
		t.Fatal(err)
	}
	if _, err := txAcker(t, ds[0]).Settled(ctx); !errors.Is(err, broker.ErrIndeterminate) {
		t.Errorf("Settled of an open transaction: %v", err)
	}
	if err := ds[0].Release(ctx, 0); !errors.Is(err, broker.ErrIndeterminate) {
		t.Errorf("Release during the transaction: %v", err)
	}
	begun := time.Now()
	testwait.Until(t, "the first leases have ended", func() bool { return time.Since(begun) > 2*lease })
	if err := broker.AckSync(ctx, ds[1]); err != nil {
		t.Errorf("settling another message: %v", err)
	}
	for i, d := range []broker.Delivery{ds[0], ds[2]} {
		select {
		case <-d.Lost():
			t.Errorf("delivery %d is lost", i)
		default:
		}
	}
	s := subscribed(ctx, t, other, "q", 3)
	short, cancel := context.WithTimeout(ctx, lease)
	defer cancel()
	if d, err := s.Receive(short); err == nil {
		t.Errorf("another consumer received %s", d.Message().ID)
	}
	if err := own.Commit(); err != nil {
		t.Fatal(err)
	}
	if gone, err := txAcker(t, ds[0]).Settled(ctx); err != nil || !gone {
		t.Errorf("Settled after the commit: %v, %v", gone, err)
	}
	if err := broker.AckSync(ctx, ds[2]); err != nil {
		t.Error(err)
	}
}

// TestAckTxLost shows what happens when another consumer has claimed the message: before AckTx, and
// after a rollback.
func TestAckTxLost(t *testing.T) {
	t.Parallel()
	for name, url := range map[string]string{"sqlite": "sqlite://" + filepath.Join(memoryDir(t), "app.db"), "postgres": testserver.RequirePostgres(t).URL()} {
		t.Run(name, func(t *testing.T) {
			ctx := testwait.Long(t)
			ds, other := held(t, url, time.Minute, "a-"+testserver.Namespace(), "b-"+testserver.Namespace())
			db := sqltest.OpenSQL(t, url)
			s := subscribed(ctx, t, other, "q", 2)
			claim := func(d broker.Delivery) broker.Delivery {
				if _, err := db.ExecContext(ctx, "UPDATE swarmiji_message SET leased = 0 WHERE id = $1", d.Message().ID); err != nil {
					t.Fatal(err)
				}
				return received(ctx, t, s)
			}
			theirs := claim(ds[0])
			own := sqltest.Begin(t, url)
			if err := txAcker(t, ds[0]).AckTx(ctx, own.Tx); !errors.Is(err, broker.ErrLeaseLost) {
				t.Errorf("AckTx of a message of another consumer: %v", err)
			}
			if rows, err := own.Tx.Query(ctx, "SELECT 1"); err != nil || rows.Close() != nil {
				t.Errorf("the transaction has ended: %v", err)
			}
			if err := own.Commit(); err != nil {
				t.Error(err)
			}
			own = sqltest.Begin(t, url)
			if err := txAcker(t, ds[1]).AckTx(ctx, own.Tx); err != nil {
				t.Errorf("AckTx: %v", err)
			}
			if err := own.Rollback(); err != nil {
				t.Error(err)
			}
			also := claim(ds[1])
			if _, err := txAcker(t, ds[1]).Settled(ctx); !errors.Is(err, broker.ErrLeaseLost) {
				t.Errorf("Settled of a message of another consumer: %v", err)
			}
			testwait.Closed(t, "the delivery is lost", ds[1].Lost())
			for _, d := range []broker.Delivery{theirs, also} {
				if err := broker.AckSync(ctx, d); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// TestAckTxSettledByOthers shows that a message that another consumer has settled after a rollback
// does not count as acknowledged by the transaction.
func TestAckTxSettledByOthers(t *testing.T) {
	t.Parallel()
	url, ctx := testserver.RequirePostgres(t).URL(), testwait.Long(t)
	ds, other := held(t, url, time.Minute, "settled-"+testserver.Namespace())
	own := sqltest.Begin(t, url)
	if err := txAcker(t, ds[0]).AckTx(ctx, own.Tx); err != nil {
		t.Fatal(err)
	}
	s := subscribed(ctx, t, other, "q", 1)
	if err := own.Rollback(); err != nil {
		t.Fatal(err)
	}
	db := sqltest.OpenSQL(t, url) // as if the lease had ended during the transaction
	if _, err := db.ExecContext(ctx, "UPDATE swarmiji_message SET leased = 0 WHERE id = $1", ds[0].Message().ID); err != nil {
		t.Fatal(err)
	}
	if err := broker.AckSync(ctx, received(ctx, t, s)); err != nil {
		t.Fatal(err)
	}
	if gone, err := txAcker(t, ds[0]).Settled(ctx); !errors.Is(err, broker.ErrLeaseLost) {
		t.Errorf("Settled: %v, %v; want ErrLeaseLost", gone, err)
	}
}

// TestAckTxSerializable shows that AckTx fails in a transaction with a snapshot from before a
// renewal of the lease. Its error is that for which such transactions are repeated.
func TestAckTxSerializable(t *testing.T) {
	t.Parallel()
	url, ctx := testserver.RequirePostgres(t).URL(), testwait.Long(t)
	ds, _ := held(t, url, 3*time.Second, "serializable")
	var conns [2]*pgx.Conn
	for i := range conns {
		c, err := pgx.Connect(ctx, url)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close(ctx) }()
		conns[i] = c
	}
	conn := conns[0]
	leased := func() (until int64) {
		if err := conns[1].QueryRow(ctx, "SELECT max(leased) FROM swarmiji_message WHERE id = 'serializable'").Scan(&until); err != nil {
			t.Fatal(err)
		}
		return until
	}
	ack := func(wait bool) error {
		own, err := conn.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = own.Rollback(ctx) }()
		if wait {
			var n int
			if err := own.QueryRow(ctx, "SELECT 1").Scan(&n); err != nil { // takes the snapshot
				t.Fatal(err)
			}
			before := leased()
			testwait.Until(t, "the lease is renewed", func() bool { return leased() > before })
		}
		if err := txAcker(t, ds[0]).AckTx(ctx, pgxtx.Wrap(own)); err != nil {
			return err
		}
		return own.Commit(ctx)
	}
	failed := ack(true)
	if pg, ok := errors.AsType[*pgconn.PgError](failed); !ok || pg.Code != "40001" {
		t.Errorf("AckTx after a renewal: %v", failed)
	}
	if err := ack(false); err != nil {
		t.Errorf("AckTx in a new transaction: %v", err)
	}
	if gone, err := txAcker(t, ds[0]).Settled(ctx); err != nil || !gone {
		t.Errorf("Settled: %v, %v", gone, err)
	}
}

// files returns the URL of a database of each kind that programs share.
func files(t *testing.T) map[string]string {
	return map[string]string{"sqlite": "sqlite://" + filepath.Join(memoryDir(t), "app.db"), "postgres": testserver.RequirePostgres(t).URL()}
}

// TestAckTxGoneAfterTheLease shows that on SQLite a missing message proves no commit after the end
// of the lease: another consumer may have settled it.
func TestAckTxGoneAfterTheLease(t *testing.T) {
	t.Parallel()
	url, ctx := "sqlite://"+filepath.Join(memoryDir(t), "app.db"), testwait.Long(t)
	const lease = 300 * time.Millisecond
	ds, _ := held(t, url, lease, "a")
	own := sqltest.Begin(t, url) // it holds the write lock, so that no lease is renewed
	do := func(text string) {
		t.Helper()
		if _, err := own.Tx.Exec(ctx, text); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
	}
	do("SAVEPOINT before")
	if err := txAcker(t, ds[0]).AckTx(ctx, own.Tx); err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	testwait.Until(t, "the lease is over", func() bool { return time.Since(begun) > 2*lease })
	do("ROLLBACK TO before")
	// as a claim and a settlement by another consumer do
	do("DELETE FROM swarmiji_message WHERE id = 'a'")
	if err := own.Commit(); err != nil {
		t.Fatal(err)
	}
	if gone, err := txAcker(t, ds[0]).Settled(ctx); !errors.Is(err, broker.ErrLeaseLost) {
		t.Errorf("Settled: %v, %v; want ErrLeaseLost", gone, err)
	}
}

// TestAckTxRefused shows that AckTx that has failed proves nothing: after a rollback the message is
// held, although its row may be gone later.
func TestAckTxRefused(t *testing.T) {
	t.Parallel()
	url, ctx := testserver.RequirePostgres(t).URL(), testwait.Long(t)
	ds, _ := held(t, url, time.Minute, "refused-"+testserver.Namespace())
	id, db := ds[0].Message().ID, sqltest.OpenSQL(t, url)
	do := func(own sqltest.Transaction, text string, args ...any) {
		t.Helper()
		if _, err := own.Tx.Exec(ctx, text, args...); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
	}
	own := sqltest.Begin(t, url)
	do(own, "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
	do(own, "SELECT FROM swarmiji_message") // its snapshot
	if _, err := db.ExecContext(ctx, "UPDATE swarmiji_message SET leased = leased WHERE id = $1", id); err != nil {
		t.Fatal(err) // as a renewal does
	}
	if err := txAcker(t, ds[0]).AckTx(ctx, own.Tx); err == nil {
		t.Fatal("AckTx of a row that has changed since the snapshot must fail")
	}
	if err := own.Rollback(); err != nil {
		t.Fatal(err)
	}
	if _, err := db.ExecContext(ctx, "DELETE FROM swarmiji_message WHERE id = $1", id); err != nil {
		t.Fatal(err) // as another consumer after the lease does
	}
	if gone, err := txAcker(t, ds[0]).Settled(ctx); gone {
		t.Errorf("Settled: %v, %v; AckTx has failed, so nothing was committed", gone, err)
	}
}

// TestAckTxRepeated shows that AckTx succeeds in another transaction after rollbacks, also if that
// transaction has its snapshot already. A failed repeat does not prevent the next one.
func TestAckTxRepeated(t *testing.T) {
	t.Parallel()
	url, ctx := testserver.RequirePostgres(t).URL(), testwait.Long(t)
	for _, level := range []string{"READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"} {
		t.Run(level, func(t *testing.T) {
			ds, _ := held(t, url, time.Minute, "repeated-"+testserver.Namespace())
			id, db := ds[0].Message().ID, sqltest.OpenSQL(t, url)
			begin := func() sqltest.Transaction {
				own := sqltest.Begin(t, url)
				for _, text := range []string{"SET TRANSACTION ISOLATION LEVEL " + level, "SELECT FROM swarmiji_message"} {
					if _, err := own.Tx.Exec(ctx, text); err != nil {
						t.Fatalf("%s: %v", text, err)
					}
				}
				return own
			}
			for i := range 3 { // two repeats
				own := begin()
				if err := txAcker(t, ds[0]).AckTx(ctx, own.Tx); err != nil {
					t.Fatalf("AckTx after %d rollbacks: %v", i, err)
				}
				if err := own.Rollback(); err != nil {
					t.Fatal(err)
				}
			}
			own := begin()
			if _, err := db.ExecContext(ctx, "UPDATE swarmiji_message SET leased = leased WHERE id = $1", id); err != nil {
				t.Fatal(err) // as a renewal does
			}
			if err := txAcker(t, ds[0]).AckTx(ctx, own.Tx); (err != nil) != (level != "READ COMMITTED") {
				t.Errorf("AckTx of a row that has changed since the snapshot: %v", err)
			}
			if err := own.Rollback(); err != nil {
				t.Fatal(err)
			}
			own = begin()
			if err := txAcker(t, ds[0]).AckTx(ctx, own.Tx); err != nil {
				t.Fatalf("AckTx after a failed one: %v", err)
			}
			if err := txAcker(t, ds[0]).AckTx(ctx, own.Tx); !errors.Is(err, broker.ErrSettled) {
				t.Errorf("AckTx during the transaction: %v, want ErrSettled", err)
			}
			if err := own.Commit(); err != nil {
				t.Fatal(err)
			}
			own = begin()
			if err := txAcker(t, ds[0]).AckTx(ctx, own.Tx); !errors.Is(err, broker.ErrSettled) {
				t.Errorf("AckTx after the commit: %v, want ErrSettled", err)
			}
			if err := own.Rollback(); err != nil {
				t.Error(err)
			}
			if gone, err := txAcker(t, ds[0]).Settled(ctx); err != nil || !gone {
				t.Errorf("Settled: %v, %v", gone, err)
			}
		})
	}
}

// TestAckTxSavepoint repeats AckTx in the same transaction of PostgreSQL, after the rollback to a
// savepoint.
func TestAckTxSavepoint(t *testing.T) {
	t.Parallel()
	url, ctx := testserver.RequirePostgres(t).URL(), testwait.Long(t)
	ds, _ := held(t, url, time.Minute, "savepoint-"+testserver.Namespace())
	own := sqltest.Begin(t, url)
	do := func(text string) {
		t.Helper()
		if _, err := own.Tx.Exec(ctx, text); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
	}
	do("SAVEPOINT before")
	if err := txAcker(t, ds[0]).AckTx(ctx, own.Tx); err != nil {
		t.Fatal(err)
	}
	do("ROLLBACK TO before")
	if err := txAcker(t, ds[0]).AckTx(ctx, own.Tx); err != nil {
		t.Errorf("AckTx after the rollback to the savepoint: %v", err)
	}
	if err := own.Commit(); err != nil {
		t.Fatal(err)
	}
	if gone, err := txAcker(t, ds[0]).Settled(ctx); err != nil || !gone {
		t.Errorf("Settled: %v, %v", gone, err)
	}
}

// TestAckTxTaken shows that a delivery is lost soon after another consumer has claimed its message.
// Settled is not called: the handler still runs.
func TestAckTxTaken(t *testing.T) {
	t.Parallel()
	for name, url := range files(t) {
		t.Run(name, func(t *testing.T) {
			ctx := testwait.Long(t)
			ds, _ := held(t, url, 500*time.Millisecond, "taken-"+testserver.Namespace())
			own := sqltest.Begin(t, url)
			if err := txAcker(t, ds[0]).AckTx(ctx, own.Tx); err != nil {
				t.Fatal(err)
			}
			if err := own.Rollback(); err != nil {
				t.Fatal(err)
			}
			if _, err := sqltest.OpenSQL(t, url).ExecContext(ctx, "UPDATE swarmiji_message SET token = token + 1 WHERE id = $1", ds[0].Message().ID); err != nil {
				t.Fatal(err)
			}
			testwait.Closed(t, "the delivery is lost", ds[0].Lost())
		})
	}
}

// TestAckTxGivenBack gives a message back while its transaction is open. After the rollback it goes
// to another consumer, while the Broker stays open.
func TestAckTxGivenBack(t *testing.T) {
	t.Parallel()
	for name, url := range files(t) {
		t.Run(name, func(t *testing.T) {
			ctx := testwait.Long(t)
			const lease = 500 * time.Millisecond
			ds, other := held(t, url, lease, "back-"+testserver.Namespace())
			s := subscribed(ctx, t, other, "q", 1)
			own := sqltest.Begin(t, url)
			if err := txAcker(t, ds[0]).AckTx(ctx, own.Tx); err != nil {
				t.Fatal(err)
			}
			short, cancel := context.WithTimeout(ctx, lease/5)
			defer cancel()
			if err := ds[0].Release(short, 0); err == nil {
				t.Error("Release during the transaction")
			}
			if err := own.Rollback(); err != nil {
				t.Fatal(err)
			}
			d := received(ctx, t, s)
			if d.Message().ID != ds[0].Message().ID {
				t.Errorf("received %s", d.Message().ID)
			}
			if err := broker.AckSync(ctx, d); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestAckSyncBesideRenewal shows that an early acknowledgement waits for a renewal of leases. Each
// would take the other's row lock for a lost lease.
func TestAckSyncBesideRenewal(t *testing.T) {
	t.Parallel()
	url, ctx := testserver.RequirePostgres(t).URL(), testwait.Long(t)
	ds, _ := held(t, url, time.Minute, "early-"+testserver.Namespace())
	end := sqlbroker.BeginRenewal(ds[0])
	short, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
	defer cancel()
	if err := broker.AckSync(short, ds[0]); !errors.Is(err, broker.ErrUnavailable) {
		t.Errorf("AckSync during a renewal: %v, want ErrUnavailable", err)
	}
	end()
	if err := broker.AckSync(ctx, ds[0]); err != nil {
		t.Error(err)
	}
}

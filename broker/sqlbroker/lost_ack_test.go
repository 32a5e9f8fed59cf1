package sqlbroker_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/sqlconn"
	"github.com/swarmiji/swarmiji/internal/sqlconn/sqltest"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/internal/testwait"
)

// An acknowledgement was executed, its answer is lost, and the connection returns after the end of
// the lease. The consumer must learn that the outcome is unknown. With ErrLeaseLost it would leave
// a task that runs at most once to another consumer, and no consumer would have it.
func TestLostAckAfterLease(t *testing.T) {
	t.Parallel()
	srv := testserver.RequirePostgres(t)
	proxy := testserver.NewProxy(t, srv.Addr())
	ctx := testwait.Long(t)
	ns := testserver.Namespace()
	// A second connection would ask the server to parse the statement. It would wait for the lock
	// there, and never execute it.
	cfg := config(t, proxy.URL(srv.URL())+"&pool_max_conns=1", ns)
	// Before the first renewal the acknowledgement must wait for the lock, also on a busy machine.
	cfg.Lease = 5 * time.Second
	one, two := open(t, cfg), open(t, config(t, srv.URL(), ns))
	defer func() {
		if err := errors.Join(one.Close(ctx), two.Close(ctx)); err != nil {
			t.Error(err)
		}
	}()
	s := subscribed(ctx, t, one, "q", 2)
	for _, id := range []string{"a", "b"} {
		if err := two.Publish(ctx, "q", &broker.Message{ID: id}); err != nil {
			t.Fatal(err)
		}
	}
	first, second := received(ctx, t, s), received(ctx, t, s)
	if err := broker.AckSync(ctx, first); err != nil { // makes both claims durable
		t.Fatal(err)
	}
	// The acknowledgement waits for a lock when the answers begin to vanish.
	release := lockMessages(ctx, t, srv.URL())
	acked := make(chan error, 1)
	go func() { acked <- broker.AckSync(ctx, second) }()
	testwait.Until(t, "the acknowledgement waits for the lock", func() bool { return waiting(ctx, t, srv.URL()) })
	proxy.BlackHole(false, true)
	release()
	testwait.Until(t, "the acknowledgement is executed", func() bool {
		st, err := two.Stats(ctx, "q")
		return err == nil && st.Ready+st.Held == 0
	})
	proxy.Cut()
	<-second.Lost()
	proxy.Heal()
	if err := <-acked; !errors.Is(err, broker.ErrIndeterminate) {
		t.Errorf("AckSync: %v, want ErrIndeterminate", err)
	}
}

// lockMessages locks the table of messages against writes until the returned function is called.
func lockMessages(ctx context.Context, t *testing.T, url string) (release func()) {
	t.Helper()
	conn := sqltest.Conn(t, url)
	locked, end, ended := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- conn.Update(ctx, func(ctx context.Context, tx *sqlconn.Tx) error {
			_, err := tx.Exec(ctx, "LOCK TABLE swarmiji_message IN EXCLUSIVE MODE")
			close(locked)
			select {
			case <-end:
			case <-ctx.Done():
			}
			return err
		})
	}()
	<-locked
	return func() {
		t.Helper()
		close(end)
		if err := errors.Join(<-ended, conn.Close(ctx)); err != nil {
			t.Fatal(err)
		}
	}
}

// waiting reports whether a session of the server waits for the lock of the table of messages to
// delete from it. Renewals of the lease wait for the same lock.
func waiting(ctx context.Context, t *testing.T, url string) bool {
	t.Helper()
	db, err := sqltest.New(url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close(ctx) }()
	conn, err := sqlconn.Of(db, "")
	if err != nil {
		t.Fatal(err)
	}
	var n int64
	err = conn.View(ctx, func(ctx context.Context, tx *sqlconn.Tx) error {
		return tx.Row(ctx, `SELECT count(*) FROM pg_locks AS l JOIN pg_stat_activity AS a ON a.pid = l.pid
			WHERE NOT l.granted AND l.relation = 'swarmiji_message'::regclass AND a.query ILIKE '%delete from%'`).Scan(&n)
	})
	return err == nil && n > 0
}

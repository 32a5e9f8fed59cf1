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

// A crash of the server may undo a claim, since claims do not wait for the disk. The message then
// goes to another consumer. An acknowledgement that was under way must not be reported as executed.
func TestCrashUndoesClaim(t *testing.T) {
	t.Parallel()
	// The server writes a claim to the disk only with the next commit that waits for it.
	srv := testserver.OwnPostgres(t, testserver.PostgresConfig{Conf: "wal_writer_delay = 10s"})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	ns := testserver.Namespace()
	one, two := open(t, config(t, srv.URL(), ns)), open(t, config(t, srv.URL(), ns))
	defer func() {
		if err := errors.Join(one.Close(ctx), two.Close(ctx)); err != nil {
			t.Error(err)
		}
	}()
	s := subscribed(ctx, t, one, "q", 1)
	if err := two.Publish(ctx, "q", &broker.Message{ID: "a"}); err != nil {
		t.Fatal(err)
	}
	d := received(ctx, t, s)

	// The acknowledgement waits for a lock when the server is killed.
	blocked := blockUntilEnd(ctx, t, srv, "BEGIN; LOCK TABLE swarmiji_message IN EXCLUSIVE MODE")
	acked := make(chan error, 1)
	go func() { acked <- broker.AckSync(ctx, d) }()
	testwait.Until(t, "the acknowledgement waits for the lock", func() bool {
		return blocked("SELECT count(*) FROM pg_locks WHERE NOT granted") > 0
	})
	srv.Kill()
	if err := srv.Restart(ctx); err != nil {
		t.Fatal(err)
	}
	ackErr := <-acked
	if err := s.Close(ctx); err != nil {
		t.Fatal(err)
	}
	st, err := two.Stats(ctx, "q")
	if err != nil {
		t.Fatal(err)
	}
	if ackErr == nil && st.Ready+st.Held > 0 {
		t.Errorf("AckSync returned nil, and the message is in the queue: %+v", st)
	}
	if ackErr != nil && !errors.Is(ackErr, broker.ErrLeaseLost) {
		t.Errorf("AckSync: %v, want ErrLeaseLost", ackErr)
	}
}

// blockUntilEnd runs statements in a session that then sleeps, until the server or the test ends.
// It returns a function that reads a number in another session, or -1 after an error.
func blockUntilEnd(ctx context.Context, t *testing.T, srv *testserver.Postgres, text string) func(query string) int64 {
	t.Helper()
	conn := sqltest.Conn(t, srv.URL()+"&application_name=control")
	whole := ctx
	read := func(query string) int64 {
		n := int64(-1)
		err := conn.View(whole, func(ctx context.Context, tx *sqlconn.Tx) error { return tx.Row(ctx, query).Scan(&n) })
		if err != nil {
			return -1
		}
		return n
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = srv.Exec(ctx, "postgres", text+"; SELECT pg_sleep(600)") // it is interrupted
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	testwait.Until(t, "the session sleeps", func() bool {
		return read("SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'") == 1
	})
	return read
}

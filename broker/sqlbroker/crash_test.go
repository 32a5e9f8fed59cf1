package sqlbroker_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/swarmiji/swarmiji/broker"
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
	one, two := open(t, config(srv.URL(), ns)), open(t, config(srv.URL(), ns))
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
	locker, err := pgx.Connect(ctx, srv.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = locker.Close(ctx) }() // the server is killed before
	if _, err := locker.Exec(ctx, "BEGIN; LOCK TABLE swarmiji_message IN EXCLUSIVE MODE"); err != nil {
		t.Fatal(err)
	}
	acked := make(chan error, 1)
	go func() { acked <- broker.AckSync(ctx, d) }()
	testwait.Until(t, "the acknowledgement waits for the lock", func() bool {
		var n int
		err := locker.QueryRow(ctx, "SELECT count(*) FROM pg_locks WHERE NOT granted").Scan(&n)
		return err == nil && n > 0
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

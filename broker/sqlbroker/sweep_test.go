package sqlbroker_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/testserver"
)

// A long transaction of somebody else keeps all messages that are removed meanwhile. A claim must
// not read them each time.
func TestLongTransactionOfOthers(t *testing.T) {
	t.Parallel()
	const removed, rounds = 300_000, 30
	srv := testserver.OwnPostgres(t, testserver.PostgresConfig{Conf: "fsync = off"})
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	control, err := pgx.Connect(ctx, srv.URL())
	if err != nil {
		t.Fatal(err)
	}
	other, err := pgx.Connect(ctx, srv.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = control.Close(context.Background()), other.Close(context.Background()) }()
	b := open(t, config(srv.URL(), "n"))
	if err := b.Declare(ctx, broker.Queue{Name: "q"}); err != nil {
		t.Fatal(err)
	}
	if _, err := other.Exec(ctx, "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM swarmiji_message"); err != nil {
		t.Fatal(err)
	}
	for _, query := range []string{
		fmt.Sprintf(`INSERT INTO swarmiji_message (queue, level, due, id, generation, priority, expires, content_type, body)
			SELECT q.id, 0, n, n, 0, 0, 0, '', '' FROM swarmiji_queue AS q, generate_series(1, %d) AS n`, removed),
		`DELETE FROM swarmiji_message`,
	} {
		if _, err := control.Exec(ctx, query); err != nil {
			t.Fatal(err)
		}
	}

	s := subscribed(ctx, t, b, "q", 1)
	for i := range rounds {
		if err := b.Publish(ctx, "q", &broker.Message{ID: fmt.Sprintf("m%d", i)}); err != nil {
			t.Fatal(err)
		}
		if err := broker.AckSync(ctx, received(ctx, t, s)); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.Close(ctx); err != nil { // its sessions report what they have read when they end
		t.Fatal(err)
	}
	var read int64
	for open := 1; open > 0; {
		err := control.QueryRow(ctx, `SELECT (SELECT count(*) FROM pg_stat_activity WHERE application_name = 'swarmiji'),
			(SELECT idx_tup_read FROM pg_stat_all_indexes WHERE indexrelname = 'swarmiji_message_due')`).Scan(&open, &read)
		if err != nil {
			t.Fatal(err)
		}
	}
	if most := int64(removed * rounds / 3); read > most {
		t.Errorf("%d messages read %d index entries, want at most %d", rounds, read, most)
	}
	t.Logf("%d messages read %d index entries; %d messages were removed before", rounds, read, removed)
}

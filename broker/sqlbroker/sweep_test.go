package sqlbroker_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/internal/testwait"
)

// A long transaction of another session keeps all messages that are removed meanwhile. A claim must
// not read them each time.
func TestLongTransactionOfOthers(t *testing.T) {
	t.Parallel()
	const removed, rounds = 300_000, 30
	srv := testserver.OwnPostgres(t, testserver.PostgresConfig{Conf: "fsync = off"})
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cfg := config(t, srv.URL(), "n")
	b := open(t, cfg)
	if err := b.Declare(ctx, broker.Queue{Name: "q"}); err != nil {
		t.Fatal(err)
	}
	read := blockUntilEnd(ctx, t, srv, "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM swarmiji_message")
	for _, query := range []string{
		fmt.Sprintf(`INSERT INTO swarmiji_message (queue, level, due, id, generation, priority, expires, content_type, body)
			SELECT q.id, 0, n, n, 0, 0, 0, '', '' FROM swarmiji_queue AS q, generate_series(1, %d) AS n`, removed),
		`DELETE FROM swarmiji_message`,
	} {
		if err := srv.Exec(ctx, "postgres", query); err != nil {
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
	// the sessions of b report the entries that they have read when they end
	if err := errors.Join(b.Close(ctx), cfg.DB.Close(ctx)); err != nil {
		t.Fatal(err)
	}
	testwait.Until(t, "the sessions have ended", func() bool {
		return read("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'swarmiji'") == 0
	})
	entries := read("SELECT idx_tup_read FROM pg_stat_all_indexes WHERE indexrelname = 'swarmiji_message_due'")
	if most := int64(removed * rounds / 3); entries > most || entries < 0 {
		t.Errorf("%d messages read %d index entries, want at most %d", rounds, entries, most)
	}
	t.Logf("%d messages read %d index entries; %d messages were removed before", rounds, entries, removed)
}

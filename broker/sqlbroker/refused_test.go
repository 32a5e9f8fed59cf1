package sqlbroker_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/broker/sqlbroker"
	"github.com/swarmiji/swarmiji/internal/sqlconn"
	"github.com/swarmiji/swarmiji/internal/sqlconn/sqltest"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/internal/testwait"
)

// refuse makes the database refuse the statements of a kind, such as DELETE, on the table of
// messages, until the returned function is called.
func refuse(ctx context.Context, t *testing.T, url, kind string) (end func()) {
	t.Helper()
	conn := sqltest.Conn(t, url)
	begin := []string{`CREATE TRIGGER refuse BEFORE ` + kind + ` ON swarmiji_message BEGIN SELECT RAISE(ABORT, 'no'); END`}
	stop := `DROP TRIGGER refuse`
	if conn.Dialect() == sqlconn.Postgres {
		begin = []string{
			`CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'no'; END $$`,
			`CREATE TRIGGER refuse BEFORE ` + kind + ` ON swarmiji_message FOR EACH ROW EXECUTE FUNCTION refuse()`,
		}
		stop = `DROP FUNCTION refuse CASCADE`
	}
	run := func(queries ...string) {
		err := conn.Update(ctx, func(ctx context.Context, tx *sqlconn.Tx) error {
			for _, q := range queries {
				if _, err := tx.Exec(ctx, q); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	run(begin...)
	return func() { run(stop) }
}

// eachDatabase runs fn as a subtest with a database of its own, of each kind that has a server or a
// file.
func eachDatabase(t *testing.T, fn func(ctx context.Context, t *testing.T, url string)) {
	for name, url := range urls(t) {
		if name == "memory" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if name == "postgres" {
				var err error
				if url, err = testserver.RequirePostgres(t).Database(ctx, strings.ToLower(testserver.Namespace())); err != nil {
					t.Fatal(err)
				}
			}
			fn(ctx, t, url)
		})
	}
}

// An acknowledgement for which no caller waits is repeated after the database has refused it. A
// finished task would run again otherwise.
func TestRefusedAckIsRepeated(t *testing.T) {
	eachDatabase(t, func(ctx context.Context, t *testing.T, url string) {
		b := open(t, config(t, url, "n"))
		defer func() {
			if err := b.Close(ctx); err != nil {
				t.Error(err)
			}
		}()
		s := subscribed(ctx, t, b, "q", 2)
		for _, id := range []string{"a", "b"} {
			if err := b.Publish(ctx, "q", &broker.Message{ID: id}); err != nil {
				t.Fatal(err)
			}
		}
		first, second := received(ctx, t, s), received(ctx, t, s)
		end := refuse(ctx, t, url, "DELETE")
		if err := first.Ack(ctx); err != nil {
			t.Fatal(err)
		}
		// it is sent with the first or after it
		if err := broker.AckSync(ctx, second); !errors.Is(err, broker.ErrAccess) {
			t.Fatalf("AckSync: %v, want ErrAccess", err)
		}
		end()
		testwait.Until(t, "the first message is acknowledged", func() bool {
			st, err := b.Stats(ctx, "q")
			return err == nil && st == broker.Stats{Held: 1}
		})
	})
}

// lines counts the lines of a log.
type lines chan string

func (l lines) Write(p []byte) (int, error) {
	l <- string(p)
	return len(p), nil
}

// A consumer whose claims are refused logs that, since Receive waits.
func TestRefusedClaimIsLogged(t *testing.T) {
	eachDatabase(t, func(ctx context.Context, t *testing.T, url string) {
		log := make(lines, 1000)
		cfg := config(t, url, "n")
		cfg.Logger = slog.New(slog.NewTextHandler(log, nil))
		b, err := sqlbroker.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := b.Close(ctx); err != nil {
				t.Error(err)
			}
		}()
		s := subscribed(ctx, t, b, "q", 1)
		end := refuse(ctx, t, url, "UPDATE")
		if err := b.Publish(ctx, "q", &broker.Message{ID: "a"}); err != nil {
			t.Fatal(err)
		}
		select {
		case line := <-log:
			if !strings.Contains(line, "claimed") || !strings.Contains(line, "queue=q") {
				t.Errorf("the log has %s", line)
			}
		case <-ctx.Done():
			t.Fatal("nothing is logged")
		}
		end()
		testwait.Until(t, "the message arrives", func() bool {
			short, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			d, err := s.Receive(short)
			return err == nil && d.Message().ID == "a"
		})
	})
}

// A consumer of an empty queue does not write, since it would wait for other writers of the file
// and make them wait.
func TestIdleConsumerTakesNoLock(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	url := urls(t)["sqlite"]
	cfg := config(t, url, "n")
	cfg.Poll = 10 * time.Millisecond
	b := open(t, cfg)
	s := subscribed(ctx, t, b, "q", 10)
	if err := b.Publish(ctx, "q", &broker.Message{ID: "a"}); err != nil {
		t.Fatal(err)
	}
	if err := broker.AckSync(ctx, received(ctx, t, s)); err != nil {
		t.Fatal(err)
	}
	polls := func() {
		begun := time.Now()
		testwait.Until(t, "some polls have passed", func() bool { return time.Since(begun) > 20*cfg.Poll })
	}
	polls() // the first of them may follow the message
	conn := sqltest.Conn(t, url)
	// the transaction holds the lock of the file
	err := conn.Update(ctx, func(ctx context.Context, tx *sqlconn.Tx) error {
		if _, err := tx.Exec(ctx, "UPDATE swarmiji_queue SET dropped = dropped"); err != nil {
			return err
		}
		polls()
		short, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		return b.Close(short)
	})
	if err := errors.Join(err, conn.Close(ctx)); err != nil {
		t.Error(err)
	}
}

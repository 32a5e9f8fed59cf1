package sqlconn_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/internal/sqlconn"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/internal/testwait"
)

// logged is a log that a test can read while it is written.
type logged struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logged) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func (l *logged) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

// migrateSoon starts a migration. The channel receives its result.
func migrateSoon(ctx context.Context, c *sqlconn.Conn, texts ...string) <-chan error {
	answer := make(chan error, 1)
	go func() { answer <- sqlconn.Migrate(ctx, c, "one", files(texts...)) }()
	return answer
}

// holdTable reads table m in a transaction that stays open until release is called.
func holdTable(ctx context.Context, t *testing.T, dsn string) (release func()) {
	reader := open(t, sqlconn.Config{URL: dsn + "&idle_in_transaction_session_timeout=0", Name: "a long report", Timeout: time.Hour})
	held, over, ended := make(chan struct{}), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		err := reader.Update(ctx, func(ctx context.Context, tx *sqlconn.Tx) error {
			var n int64
			if err := tx.Row(ctx, "SELECT count(*) FROM m").Scan(&n); err != nil {
				return err
			}
			close(held)
			<-over
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}()
	release = sync.OnceFunc(func() { close(over); <-ended })
	t.Cleanup(release)
	testwait.Closed(t, "the reader holds the table", held)
	return release
}

// TestMigrationLetsOthersGoOn shows that a migration waits for an open transaction that reads.
// Inserts of the old version continue. The log names the table and the session that holds it.
func TestMigrationLetsOthersGoOn(t *testing.T) {
	dsn := pgURL(t, testserver.RequirePostgres(t))
	first, second := "CREATE TABLE m (id bigint)", "ALTER TABLE m ADD COLUMN v text"
	old := open(t, sqlconn.Config{URL: dsn})
	if err := <-migrateSoon(testwait.Long(t), old, first); err != nil {
		t.Fatal(err)
	}
	release := holdTable(testwait.Long(t), t, dsn)
	var log logged
	c := open(t, sqlconn.Config{URL: dsn, Logger: log.logger(), LockWait: 300 * time.Millisecond})
	answer := migrateSoon(testwait.Long(t), c, first, second)
	inserts := func(n int) {
		for range n {
			if err := tryExec(testwait.Long(t), old, "INSERT INTO m (id) VALUES (1)"); err != nil {
				t.Fatalf("an insert of the version before, beside a migration that waits: %v", err)
			}
		}
	}
	testwait.Until(t, "a migration is blocked by the reader", func() bool {
		return number(t, old, "SELECT count(*) FROM pg_locks WHERE NOT granted") > 0 || log.String() != ""
	})
	inserts(1)
	testwait.Until(t, "the log names what is waited for", func() bool {
		inserts(10)
		line := log.String()
		return strings.Contains(line, "component=one") && strings.Contains(line, "lock=m ") && strings.Contains(line, "a long report, idle in transaction")
	})
	select {
	case err := <-answer:
		t.Fatalf("the migration ended beside the open transaction: %v", err)
	default:
	}
	release()
	if err := <-answer; err != nil {
		t.Errorf("Migrate after the transaction's end: %v", err)
	}
	if n := number(t, old, "SELECT count(*) FROM m WHERE v IS NULL"); n < 11 {
		t.Errorf("%d rows, want all that were inserted", n)
	}
}

// TestMigrationBesideALongReport holds a table in a read transaction for five minutes, with default
// settings. No insert of the old version waits for more than three seconds.
func TestMigrationBesideALongReport(t *testing.T) {
	testserver.Thorough(t) // TestMigrationLetsOthersGoOn is the quick one
	dsn := pgURL(t, testserver.RequirePostgres(t))
	first, second := "CREATE TABLE m (id bigint)", "ALTER TABLE m ADD COLUMN v text"
	old := open(t, sqlconn.Config{URL: dsn})
	ctx := t.Context()
	if err := <-migrateSoon(ctx, old, first); err != nil {
		t.Fatal(err)
	}
	release := holdTable(ctx, t, dsn)
	var log logged
	answer := migrateSoon(ctx, open(t, sqlconn.Config{URL: dsn, Logger: log.logger()}), first, second)
	rows, longest := 0, time.Duration(0)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for began, at := time.Now(), time.Now(); at.Sub(began) < 5*time.Minute; rows++ {
		<-tick.C
		at = time.Now()
		if err := tryExec(ctx, old, "INSERT INTO m (id) VALUES (1)"); err != nil {
			t.Fatalf("insert %d, beside a migration that waits: %v", rows, err)
		}
		longest = max(longest, time.Since(at))
	}
	lines := strings.Count(log.String(), "a long report, idle in transaction")
	t.Logf("%d inserts, the longest %v; %d log lines name the reader, the first: %s", rows, longest.Round(time.Millisecond), lines, strings.SplitN(log.String(), "\n", 2)[0])
	if longest > 3*time.Second || lines == 0 {
		t.Errorf("an insert waited for %v, and %d log lines name the reader", longest, lines)
	}
	select {
	case err := <-answer:
		t.Fatalf("the migration ended beside the open transaction: %v", err)
	default:
	}
	release()
	if err := <-answer; err != nil {
		t.Errorf("Migrate after the transaction's end: %v", err)
	}
	if n := number(t, old, "SELECT count(*) FROM m WHERE v IS NULL"); n != int64(rows) {
		t.Errorf("%d rows, want %d", n, rows)
	}
}

// TestMigrationHasNoLimit shows that a migration with its locks may exceed the time limit of an
// attempt and the ctx of its caller. It runs once.
func TestMigrationHasNoLimit(t *testing.T) {
	dsn := pgURL(t, testserver.RequirePostgres(t))
	watcher := open(t, sqlconn.Config{URL: dsn})
	run(t, watcher, "CREATE TABLE go (id bigint)")
	const limit = 400 * time.Millisecond
	c := open(t, sqlconn.Config{URL: dsn + "&statement_timeout=300ms", Timeout: limit})
	// It runs longer than an attempt may, and until the test ends it.
	slow := `CREATE TABLE m (id bigint); INSERT INTO m VALUES (1); DO $$ BEGIN
		WHILE NOT EXISTS (SELECT FROM go) OR clock_timestamp() < now() + interval '1 s' LOOP PERFORM pg_sleep(0.01); END LOOP; END $$`
	ctx, leave := context.WithCancel(testwait.Long(t))
	answer := migrateSoon(ctx, c, slow)
	running := func() bool {
		return number(t, watcher, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state = 'active' AND query LIKE 'CREATE TABLE m %'") == 1
	}
	testwait.Until(t, "the migration runs", running)
	leave()
	if err := <-answer; !errors.Is(err, sqlconn.ErrUnavailable) || !strings.Contains(err.Error(), "the migration of one is under way") {
		t.Errorf("Migrate, when its ctx ended: %v, want %v that says why", err, sqlconn.ErrUnavailable)
	}
	again := migrateSoon(testwait.Long(t), c, slow)
	run(t, watcher, "INSERT INTO go VALUES (1)")
	if err := <-again; err != nil {
		t.Errorf("Migrate, which takes longer than an attempt may: %v", err)
	}
	if n := number(t, watcher, "SELECT count(*) FROM m"); n != 1 {
		t.Errorf("the migration ran %d times", n)
	}
}

// TestCloseGivesUpAMigration shows that Close rolls back a migration and that its caller gets the
// reason.
func TestCloseGivesUpAMigration(t *testing.T) {
	dsn := pgURL(t, testserver.RequirePostgres(t))
	old := open(t, sqlconn.Config{URL: dsn})
	run(t, old, "CREATE TABLE m (id bigint)")
	release := holdTable(testwait.Long(t), t, dsn)
	c := open(t, sqlconn.Config{URL: dsn})
	answer := migrateSoon(testwait.Long(t), c, "ALTER TABLE m ADD COLUMN v text")
	testwait.Until(t, "the migration is blocked", func() bool {
		return number(t, old, "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = to_regclass('m')") > 0
	})
	shut(t, c)
	if err := <-answer; !errors.Is(err, sqlconn.ErrClosed) {
		t.Errorf("Migrate of a Conn that was closed: %v, want %v", err, sqlconn.ErrClosed)
	}
	release()
	run(t, old, "ALTER TABLE m ADD COLUMN v text") // the closed Conn has not added it
}

package sqlite_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"
	_ "modernc.org/sqlite"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/broker/sqlbroker"
	"github.com/swarmiji/swarmiji/internal/testwait"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/resultstore/sqlresults"
	"github.com/swarmiji/swarmiji/sqldb"
	"github.com/swarmiji/swarmiji/sqldb/sqlite"
	"github.com/swarmiji/swarmiji/task"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// use publishes a message and stores a result in db, and closes both adapters.
func use(t *testing.T, db sqldb.DB) {
	t.Helper()
	ctx := testwait.Long(t)
	b, err := sqlbroker.New(sqlbroker.Config{DB: db})
	if err != nil {
		t.Fatal(err)
	}
	s, err := sqlresults.New(sqlresults.Config{DB: db})
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Declare(ctx, broker.Queue{Name: "q"}); err != nil {
		t.Error(err)
	}
	if err := b.Publish(ctx, "q", &broker.Message{ID: "one", Body: []byte("x")}); err != nil {
		t.Error(err)
	}
	if err := s.Save(ctx, resultstore.Record{ID: "one", State: task.StateSucceeded}); err != nil {
		t.Error(err)
	}
	if err := errors.Join(b.Close(ctx), s.Close(ctx)); err != nil {
		t.Error(err)
	}
}

func shut(t *testing.T, db sqldb.DB) {
	t.Helper()
	if err := db.Close(context.WithoutCancel(testwait.Long(t))); err != nil {
		t.Error(err)
	}
}

// TestOpen shows the forms of a name.
func TestOpen(t *testing.T) {
	t.Chdir(t.TempDir())
	for name, file := range map[string]string{
		"sqlite:a%25.db": "a%.db", "b ?.db": "b ?.db", "./c:1.db": "c:1.db", "sqlite::memory:": "",
		filepath.Join(t.TempDir(), "e#%20.db"): "", "d%20.db": "d%20.db",
	} {
		db, err := sqlite.Open(name, sqlite.Config{})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		use(t, db)
		shut(t, db)
		if file == "" && filepath.IsAbs(name) {
			file = name
		}
		if file != "" {
			if _, err := os.Stat(file); err != nil {
				t.Error(err)
			}
		}
	}
	for _, name := range []string{"", "sqlite:", "sqlite://host/x.db", "dir/"} {
		if _, err := sqlite.Open(name, sqlite.Config{}); err == nil {
			t.Errorf("%q is accepted", name)
		}
	}
}

// TestFromDB shows that a DB shares the file of the user's pool, and gives back no connection with
// its own settings.
func TestFromDB(t *testing.T) {
	pool, err := sql.Open("sqlite", "file:"+filepath.Join(t.TempDir(), "app.db")+"?_pragma=busy_timeout(5000)&_pragma=foreign_keys(0)")
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	ctx := testwait.Long(t)
	pool.SetMaxOpenConns(3)
	if _, err := sqlite.FromDB(ctx, pool, sqlite.Config{}); err == nil || !strings.Contains(err.Error(), "SetMaxOpenConns") {
		t.Errorf("too few connections: %v", err)
	}
	db, err := sqlite.FromDB(ctx, pool, sqlite.Config{Readers: 1})
	if err != nil {
		t.Fatal(err)
	}
	use(t, db)
	var n int
	if err := pool.QueryRowContext(ctx, "SELECT count(*) FROM swarmiji_message").Scan(&n); err != nil || n != 1 {
		t.Errorf("the program sees %d messages, %v", n, err)
	}
	shut(t, db)
	for range 3 {
		conn, err := pool.Conn(ctx)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		var keys, wait int
		if err := errors.Join(conn.QueryRowContext(ctx, "PRAGMA foreign_keys").Scan(&keys), conn.QueryRowContext(ctx, "PRAGMA busy_timeout").Scan(&wait)); err != nil || keys != 0 || wait != 5000 {
			t.Errorf("a connection of the user has foreign_keys=%d, busy_timeout=%d, %v", keys, wait, err)
		}
	}
	memory, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		t.Fatal(err)
	}
	defer memory.Close()
	if _, err := sqlite.FromDB(ctx, memory, sqlite.Config{}); err == nil || !strings.Contains(err.Error(), "memory") {
		t.Errorf("a database in memory: %v", err)
	}
}

// TestMigrations shows that the printed text creates what Migrate creates.
func TestMigrations(t *testing.T) {
	schema := func(file string) (all []string) {
		t.Helper()
		pool, err := sql.Open("sqlite", file)
		if err != nil {
			t.Fatal(err)
		}
		defer pool.Close()
		rows, err := pool.QueryContext(t.Context(), "SELECT sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY name")
		if err != nil {
			t.Fatal(err)
		}
		defer rows.Close()
		for rows.Next() {
			var text string
			if err := rows.Scan(&text); err != nil {
				t.Fatal(err)
			}
			all = append(all, text)
		}
		if rows.Err() != nil {
			t.Fatal(rows.Err())
		}
		return all
	}
	dir := t.TempDir()
	db, err := sqlite.Open(filepath.Join(dir, "code.db"), sqlite.Config{})
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Migrate(testwait.Long(t)); err != nil {
		t.Fatal(err)
	}
	text, err := db.Migrations()
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(text, "subsec") {
		t.Error("the text needs SQLite 3.42; the shell of Debian 12 is 3.40, and would make tables without versions")
	}
	shut(t, db)
	pool, err := sql.Open("sqlite", filepath.Join(dir, "text.db"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := pool.ExecContext(t.Context(), text); err != nil {
		t.Fatal(err)
	}
	if err := pool.Close(); err != nil {
		t.Fatal(err)
	}
	code, printed := schema(filepath.Join(dir, "code.db")), schema(filepath.Join(dir, "text.db"))
	if len(code) == 0 || strings.Join(code, "\n") != strings.Join(printed, "\n") {
		t.Errorf("%d objects of the code, %d of the text", len(code), len(printed))
	}
}

// Example shows that the adapters of a program share one file.
func Example() {
	ctx := context.Background()
	db, err := sqlite.Open("sqlite::memory:", sqlite.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer db.Close(ctx)
	b, err := sqlbroker.New(sqlbroker.Config{DB: db})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer b.Close(ctx)
	results, err := sqlresults.New(sqlresults.Config{DB: db})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer results.Close(ctx)
	fmt.Println(db.Migrate(ctx), b.Declare(ctx, broker.Queue{Name: "mail"}))
	// Output:
	// <nil> <nil>
}

// ExampleFromDB shares the file of the program's own pool, whose rows and messages are then in one
// file.
func ExampleFromDB() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "shop")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	pool, err := sql.Open("sqlite", "file:"+filepath.Join(dir, "shop.db")+"?_pragma=busy_timeout(5000)")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer pool.Close()
	db, err := sqlite.FromDB(ctx, pool, sqlite.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer db.Close(ctx)
	b, err := sqlbroker.New(sqlbroker.Config{DB: db})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer b.Close(ctx)
	if err := broker.Declare(ctx, b, broker.Queue{Name: "mail"}); err != nil {
		fmt.Println(err)
		return
	}
	var queues int
	err = pool.QueryRowContext(ctx, "SELECT count(*) FROM swarmiji_queue").Scan(&queues)
	fmt.Println(queues, err)
	// Output:
	// 1 <nil>
}

// TestFullPool uses a pool of the program without a free connection, for which a call waits. Other
// calls and Close end with their contexts nevertheless.
func TestFullPool(t *testing.T) {
	ctx := testwait.Long(t)
	pool, err := sql.Open("sqlite", filepath.Join(t.TempDir(), "app.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = pool.Close() }()
	pool.SetMaxOpenConns(8)
	db, err := sqlite.FromDB(ctx, pool, sqlite.Config{})
	if err != nil {
		t.Fatal(err)
	}
	b, err := sqlbroker.New(sqlbroker.Config{DB: db})
	if err != nil {
		t.Fatal(err)
	}
	var taken []*sql.Conn
	for range 8 {
		c, err := pool.Conn(ctx)
		if err != nil {
			t.Fatal(err)
		}
		taken = append(taken, c)
	}
	waiting := make(chan error, 1)
	go func() { waiting <- b.Declare(ctx, broker.Queue{Name: "q"}) }()
	testwait.Until(t, "a call waits for a connection", func() bool { return pool.Stats().WaitCount > 0 })
	ended := make(chan struct{})
	short, cancel := context.WithCancel(ctx)
	go func() {
		defer close(ended)
		if _, err := b.Stats(short, "q"); !errors.Is(err, broker.ErrUnavailable) {
			t.Errorf("Stats: %v", err)
		}
		if err := db.Close(short); !errors.Is(err, context.Canceled) {
			t.Errorf("Close: %v", err)
		}
	}()
	cancel()
	testwait.Closed(t, "the calls have ended", ended)
	for _, c := range taken {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
	<-waiting
	_ = b.Close(ctx) // the database is closed already
	shut(t, db)
}

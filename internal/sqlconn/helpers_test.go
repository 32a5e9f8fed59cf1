package sqlconn_test

import (
	"bufio"
	"context"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/swarmiji/swarmiji/internal/sqlconn"
	"github.com/swarmiji/swarmiji/internal/sqlconn/postgres"
	"github.com/swarmiji/swarmiji/internal/sqlconn/sqlite"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/internal/testwait"
	"github.com/swarmiji/swarmiji/task"
)

// childEnv makes the test binary a child process with the job of its value.
const childEnv = "SQLCONN_TEST_CHILD"

func TestMain(m *testing.M) {
	if job := os.Getenv(childEnv); job != "" {
		if err := child(job, os.Getenv(childEnv+"_URL")); err != nil {
			fmt.Fprintln(os.Stdout, "error:", err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction(testserver.Reaper),
		goleak.IgnoreAnyFunction(testserver.ProxyPipe), goleak.IgnoreAnyFunction(testserver.ProxyRead))
}

// quick is a short backoff for tests.
var quick = task.Backoff{Base: 5 * time.Millisecond, Max: 50 * time.Millisecond}

func open(t testing.TB, cfg sqlconn.Config) *sqlconn.Conn {
	t.Helper()
	if cfg.Backoff == (task.Backoff{}) {
		cfg.Backoff = quick
	}
	c, err := connect(cfg)
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	t.Cleanup(func() { shut(t, c) })
	return c
}

// connect opens the database of a URL and returns a Conn to it.
func connect(cfg sqlconn.Config) (*sqlconn.Conn, error) {
	var d sqlconn.Driver = postgres.Driver{}
	if strings.HasPrefix(cfg.URL, "sqlite:") {
		d = sqlite.Driver{}
	}
	db, err := sqlconn.Open(d, cfg)
	if err != nil {
		return nil, err
	}
	return db.Conn("test"), nil
}

func shut(t testing.TB, c *sqlconn.Conn) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	if err := sqlconn.CloseAll(ctx, c); err != nil {
		t.Errorf("Close: %v", err)
	}
}

// liteURL returns the URL of a new file.
func liteURL(t testing.TB) string {
	u := url.URL{Scheme: "sqlite", Path: filepath.Join(t.TempDir(), "test.db")}
	return u.String()
}

func pgURL(t testing.TB, p *testserver.Postgres) string {
	t.Helper()
	u, err := p.Database(testwait.Long(t), testserver.Namespace())
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// each runs a test on a new database of each kind, with an empty table t.
func each(t *testing.T, test func(t *testing.T, c *sqlconn.Conn)) {
	t.Helper()
	eachURL(t, func(t *testing.T, dsn string) {
		test(t, open(t, sqlconn.Config{URL: dsn}))
	})
}

func eachURL(t *testing.T, test func(t *testing.T, dsn string)) {
	t.Helper()
	for kind, dsn := range map[string]func(t *testing.T) string{
		"sqlite":   func(t *testing.T) string { return liteURL(t) },
		"postgres": func(t *testing.T) string { return pgURL(t, testserver.RequirePostgres(t)) },
	} {
		t.Run(kind, func(t *testing.T) {
			dsn := dsn(t)
			c, err := connect(sqlconn.Config{URL: dsn, Backoff: quick})
			if err != nil {
				t.Fatal(err)
			}
			run(t, c, "CREATE TABLE t (id bigint PRIMARY KEY NOT NULL, v text)")
			shut(t, c)
			test(t, dsn)
		})
	}
}

// run runs one statement in its own transaction.
func run(t testing.TB, c *sqlconn.Conn, query string, args ...any) {
	t.Helper()
	if err := tryExec(testwait.Long(t), c, query, args...); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
}

func tryExec(ctx context.Context, c *sqlconn.Conn, query string, args ...any) error {
	return c.Update(ctx, func(ctx context.Context, tx *sqlconn.Tx) error {
		_, err := tx.Exec(ctx, query, args...)
		return err
	})
}

// number returns the result of a query for one number.
func number(t testing.TB, c *sqlconn.Conn, query string, args ...any) (n int64) {
	t.Helper()
	err := c.View(testwait.Long(t), func(ctx context.Context, tx *sqlconn.Tx) error { return tx.Row(ctx, query, args...).Scan(&n) })
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return n
}

// child runs the job of a child process.
func child(job, dsn string) error {
	ctx := context.Background()
	c, err := connect(sqlconn.Config{URL: dsn, Backoff: quick})
	if err != nil {
		return err
	}
	switch job {
	case "lock": // holds the write lock of a file until its input ends
		return c.Update(ctx, func(ctx context.Context, tx *sqlconn.Tx) error {
			if _, err := tx.Exec(ctx, "INSERT INTO t (id, v) VALUES (-1, 'lock')"); err != nil {
				return err
			}
			fmt.Fprintln(os.Stdout, "locked")
			_ = bufio.NewScanner(os.Stdin).Scan()
			return nil
		})
	case "write": // writes numbers from many goroutines, and prints the committed ones
		var group sync.WaitGroup
		for g := range 8 {
			group.Go(func() {
				for i := 0; ; i++ {
					id := os.Getpid()*1_000_000 + g*100_000 + i
					if err := tryExec(ctx, c, "INSERT INTO t (id, v) VALUES ($1, 'x')", id); err != nil {
						fmt.Fprintln(os.Stdout, "error:", err)
						return
					}
					fmt.Fprintln(os.Stdout, id)
				}
			})
		}
		group.Wait()
		return nil
	case "migrate":
		return c.Migrate(ctx, slowMigrations())
	default:
		return fmt.Errorf("no such job: %s", job)
	}
}

// process is a running child process.
type process struct {
	cmd   *exec.Cmd
	lines chan string
	stop  func() // ends its input
}

// start runs this test binary as a child process.
func start(t testing.TB, job, dsn string) *process {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+job, childEnv+"_URL="+dsn)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p := &process{cmd: cmd, lines: make(chan string, 1<<20), stop: func() { _ = in.Close() }}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer close(p.lines)
		for s := bufio.NewScanner(out); s.Scan(); {
			p.lines <- s.Text()
		}
		_ = cmd.Wait()
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-ended
	})
	return p
}

// line waits for the next line of the child.
func (p *process) line(t testing.TB) string {
	t.Helper()
	select {
	case l, ok := <-p.lines:
		if !ok {
			t.Fatal("the child has ended")
		}
		return l
	case <-time.After(2 * time.Minute):
		t.Fatal("the child says nothing")
	}
	return ""
}

// numbers reads the remaining lines of the child. Lines without a number are errors.
func (p *process) numbers() (ns []int64, errs []string) {
	for l := range p.lines {
		if n, err := strconv.ParseInt(l, 10, 64); err == nil {
			ns = append(ns, n)
		} else {
			errs = append(errs, l)
		}
	}
	return ns, errs
}

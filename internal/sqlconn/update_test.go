package sqlconn_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgxpool"

	"go.uber.org/goleak"

	"github.com/swarmiji/swarmiji/internal/sqlconn"
	"github.com/swarmiji/swarmiji/internal/sqlconn/postgres"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/internal/testwait"
)

var errMine = errors.New("mine")

func TestValuesComeBack(t *testing.T) {
	each(t, func(t *testing.T, c *sqlconn.Conn) {
		blob := "blob"
		if c.Dialect() == sqlconn.Postgres {
			blob = "bytea"
		}
		run(t, c, "CREATE TABLE v (n bigint, s text, b "+blob+", empty text, f double precision)")
		type row struct {
			N       int64
			S       string
			B       []byte
			Nothing *string
			F       float64
			Flag    bool
		}
		want := row{N: -1 << 62, S: "ä ' OR 1=1 --", B: []byte{0, 1, 255}, F: 0.5, Flag: true}
		run(t, c, "INSERT INTO v (n, s, b, empty, f) VALUES ($1, $2, $3, $4, $5)", want.N, want.S, want.B, nil, want.F)
		var got row
		err := c.View(testwait.Long(t), func(ctx context.Context, tx *sqlconn.Tx) error {
			return tx.Row(ctx, "SELECT n, s, b, empty, f, n = $1 FROM v", want.N).Scan(&got.N, &got.S, &got.B, &got.Nothing, &got.F, &got.Flag)
		})
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("want -, got +\n%s", d)
		}
	})
}

func TestErrorsRollBack(t *testing.T) {
	each(t, func(t *testing.T, c *sqlconn.Conn) {
		ctx := testwait.Long(t)
		insert := func(tx *sqlconn.Tx, id int) error {
			_, err := tx.Exec(ctx, "INSERT INTO t (id) VALUES ($1)", id)
			return err
		}
		err := c.Update(ctx, func(_ context.Context, tx *sqlconn.Tx) error {
			return errors.Join(insert(tx, 1), errMine)
		})
		if !errors.Is(err, errMine) {
			t.Errorf("Update returned %v, want the function's error", err)
		}
		err = c.Update(ctx, func(_ context.Context, tx *sqlconn.Tx) error {
			if err := insert(tx, 2); err != nil {
				return err
			}
			_ = insert(tx, 2) // the ignored error makes the transaction fail
			return nil
		})
		if !errors.Is(err, sqlconn.ErrRefused) || !sqlconn.IsUnique(err) {
			t.Errorf("after a swallowed error Update returned %v, want %v", err, sqlconn.ErrRefused)
		}
		err = c.Update(ctx, func(_ context.Context, tx *sqlconn.Tx) error {
			if err := insert(tx, 3); err != nil {
				return err
			}
			var n int
			if err := tx.Row(ctx, "SELECT id FROM t WHERE id = 99").Scan(&n); !errors.Is(err, sqlconn.ErrNoRows) {
				return fmt.Errorf("no row is %w", err)
			}
			return nil
		})
		if err != nil {
			t.Errorf("ErrNoRows doomed a transaction: %v", err)
		}
		if n := number(t, c, "SELECT sum(id) FROM t"); n != 3 {
			t.Errorf("the sum of the ids is %d, want 3", n)
		}
		if err := tryExec(ctx, c, "SELEC 1"); !errors.Is(err, sqlconn.ErrRefused) {
			t.Errorf("a statement that cannot be read: %v, want %v", err, sqlconn.ErrRefused)
		}
	})
}

// TestRowsLeftOpen shows that open rows block neither the commit nor the next transaction.
func TestRowsLeftOpen(t *testing.T) {
	each(t, func(t *testing.T, c *sqlconn.Conn) {
		run(t, c, "INSERT INTO t (id) VALUES (1), (2), (3)")
		for range 3 {
			err := c.Update(testwait.Long(t), func(ctx context.Context, tx *sqlconn.Tx) error {
				rows, err := tx.Query(ctx, "SELECT id FROM t ORDER BY id") // leaves the rows open
				if err != nil {
					return err
				}
				rows.Next()
				return rows.Err()
			})
			if err != nil {
				t.Fatal(err)
			}
			run(t, c, "UPDATE t SET v = 'x'")
		}
	})
}

func TestSingle(t *testing.T) {
	each(t, func(t *testing.T, c *sqlconn.Conn) {
		ctx := testwait.Long(t)
		var id int64
		err := c.Single(ctx, func(ctx context.Context, tx *sqlconn.Tx) error {
			return tx.Row(ctx, "INSERT INTO t (id) VALUES (5) RETURNING id").Scan(&id)
		})
		if err != nil || id != 5 {
			t.Errorf("Single: %d, %v", id, err)
		}
		err = c.Single(ctx, func(ctx context.Context, tx *sqlconn.Tx) error {
			_, err := tx.Exec(ctx, "INSERT INTO t (id) VALUES (5)")
			return err
		})
		if !sqlconn.IsUnique(err) {
			t.Errorf("the same key again: %v", err)
		}
		if n := number(t, c, "SELECT count(*) FROM t"); n != 1 {
			t.Errorf("%d rows, want 1", n)
		}
	})
}

// TestConcurrentUpdates shows that concurrent calls share commits, and that an error affects only
// its own call.
func TestConcurrentUpdates(t *testing.T) {
	each(t, func(t *testing.T, c *sqlconn.Conn) {
		const callers, calls = 32, 25
		ctx := testwait.Long(t)
		var group sync.WaitGroup
		for g := range callers {
			group.Go(func() {
				for i := range calls {
					id := g*calls + i
					err := c.Update(ctx, func(ctx context.Context, tx *sqlconn.Tx) error {
						if _, err := tx.Exec(ctx, "INSERT INTO t (id) VALUES ($1)", id); err != nil {
							return err
						}
						if id%5 == 0 {
							return errMine
						}
						if id%7 == 0 {
							_, err := tx.Exec(ctx, "INSERT INTO t (id) VALUES ($1)", id)
							return err
						}
						return nil
					})
					switch {
					case id%5 == 0:
						if !errors.Is(err, errMine) {
							t.Errorf("%d: %v, want its own error", id, err)
						}
					case id%7 == 0:
						if !sqlconn.IsUnique(err) {
							t.Errorf("%d: %v, want a key that is taken", id, err)
						}
					case err != nil:
						t.Errorf("%d: %v", id, err)
					}
				}
			})
		}
		group.Wait()
		want := int64(0)
		for id := range callers * calls {
			if id%5 != 0 && id%7 != 0 {
				want++
			}
		}
		if n := number(t, c, "SELECT count(*) FROM t"); n != want {
			t.Errorf("%d rows, want %d", n, want)
		}
	})
}

// hold keeps the writer of a file busy until release is called, so that later calls form one batch.
func hold(t *testing.T, c *sqlconn.Conn) (release func()) {
	t.Helper()
	held, free, done := make(chan struct{}), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		_ = c.Update(context.Background(), func(context.Context, *sqlconn.Tx) error {
			close(held)
			<-free
			return nil
		})
	}()
	<-held
	return sync.OnceFunc(func() {
		close(free)
		<-done
	})
}

// waitQueued waits until n calls wait for the next commit.
func waitQueued(t *testing.T, c *sqlconn.Conn, n int) {
	t.Helper()
	testwait.UntilNil(t, "calls are queued", func() error {
		if got := sqlconn.Queued(c); got != n {
			return fmt.Errorf("%d calls wait, want %d", got, n)
		}
		return nil
	})
}

// TestGroupSurvivesASpoiler shows that one commit serves all waiting calls. If one call makes
// SQLite roll back all of them, the other calls only run again.
func TestGroupSurvivesASpoiler(t *testing.T) {
	c := open(t, sqlconn.Config{URL: liteURL(t)})
	run(t, c, "CREATE TABLE t (id bigint PRIMARY KEY NOT NULL, v text)")
	run(t, c, "INSERT INTO t (id) VALUES (0)")
	release := hold(t, c)
	defer release()
	var runs atomic.Int64
	results := make(chan error, 10)
	for id := range 10 {
		go func() {
			err := c.Update(testwait.Long(t), func(ctx context.Context, tx *sqlconn.Tx) error {
				runs.Add(1)
				_, err := tx.Exec(ctx, "INSERT OR ROLLBACK INTO t (id) VALUES ($1)", id)
				return err
			})
			if id == 0 {
				if !sqlconn.IsUnique(err) {
					err = fmt.Errorf("the spoiler's error is %w", err)
				} else {
					err = nil
				}
			}
			results <- err
		}()
	}
	waitQueued(t, c, 10)
	release()
	for range 10 {
		if err := <-results; err != nil {
			t.Error(err)
		}
	}
	if n := number(t, c, "SELECT count(*) FROM t"); n != 10 {
		t.Errorf("%d rows, want 10", n)
	}
	if n := runs.Load(); n < 10 || n > 21 {
		t.Errorf("the functions ran %d times", n)
	}
}

// TestGroupAndDeferredConstraint shows that a deferred constraint gives an error only to the call
// that violates it, although the shared commit fails.
func TestGroupAndDeferredConstraint(t *testing.T) {
	c := open(t, sqlconn.Config{URL: liteURL(t)})
	run(t, c, "CREATE TABLE p (id bigint PRIMARY KEY)")
	run(t, c, "CREATE TABLE t (id bigint REFERENCES p (id) DEFERRABLE INITIALLY DEFERRED)")
	run(t, c, "INSERT INTO p VALUES (1)")
	release := hold(t, c)
	defer release()
	type result struct {
		id  int
		err error
	}
	results := make(chan result, 2)
	for id := 1; id <= 2; id++ {
		go func() { results <- result{id, tryExec(testwait.Long(t), c, "INSERT INTO t VALUES ($1)", id)} }()
	}
	waitQueued(t, c, 2)
	release()
	for range 2 {
		r := <-results
		if r.id == 1 && r.err != nil || r.id == 2 && !errors.Is(r.err, sqlconn.ErrRefused) {
			t.Errorf("row %d: %v", r.id, r.err)
		}
	}
}

func TestPanicIsTheCallers(t *testing.T) {
	each(t, func(t *testing.T, c *sqlconn.Conn) {
		func() {
			defer func() {
				if recover() != "my panic" {
					t.Error("the panic did not come out of Update")
				}
			}()
			_ = c.Update(testwait.Long(t), func(ctx context.Context, tx *sqlconn.Tx) error {
				_, _ = tx.Exec(ctx, "INSERT INTO t (id) VALUES (1)")
				panic("my panic")
			})
		}()
		run(t, c, "INSERT INTO t (id) VALUES (2)")
		if n := number(t, c, "SELECT sum(id) FROM t"); n != 2 {
			t.Errorf("the sum of the ids is %d, want 2: a panic rolls back", n)
		}
	})
}

// TestContextEnds shows that a waiting call ends with its ctx. A ctx that ends in the function
// rolls back the call.
func TestContextEnds(t *testing.T) {
	c := open(t, sqlconn.Config{URL: liteURL(t)})
	run(t, c, "CREATE TABLE t (id bigint PRIMARY KEY NOT NULL, v text)")
	release := hold(t, c)
	if err := tryExec(testwait.Brief(t), c, "INSERT INTO t (id) VALUES (1)"); !errors.Is(err, sqlconn.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("while the writer is busy: %v, want %v", err, sqlconn.ErrUnavailable)
	}
	release()
	each(t, func(t *testing.T, c *sqlconn.Conn) {
		ctx, cancel := context.WithCancel(testwait.Long(t))
		err := c.Update(ctx, func(ctx context.Context, tx *sqlconn.Tx) error {
			if _, err := tx.Exec(ctx, "INSERT INTO t (id) VALUES (2)"); err != nil {
				return err
			}
			cancel()
			_, err := tx.Exec(ctx, "INSERT INTO t (id) VALUES (3)")
			return err
		})
		if !errors.Is(err, sqlconn.ErrUnavailable) || !errors.Is(err, context.Canceled) {
			t.Errorf("a ctx that ends in the function: %v, want %v", err, sqlconn.ErrUnavailable)
		}
		if n := number(t, c, "SELECT count(*) FROM t"); n != 0 {
			t.Errorf("%d rows, want none", n)
		}
	})
	if n := number(t, c, "SELECT count(*) FROM t"); n != 0 {
		t.Errorf("%d rows, want none", n)
	}
}

func TestClose(t *testing.T) {
	each(t, func(t *testing.T, c *sqlconn.Conn) {
		shut(t, c)
		nothing := func(context.Context, *sqlconn.Tx) error { return nil }
		for name, err := range map[string]error{
			"Update": c.Update(testwait.Long(t), nothing), "View": c.View(testwait.Long(t), nothing), "Single": c.Single(testwait.Long(t), nothing),
		} {
			if !errors.Is(err, sqlconn.ErrClosed) {
				t.Errorf("%s after Close: %v, want %v", name, err, sqlconn.ErrClosed)
			}
		}
		shut(t, c)
		shut(t, open(t, sqlconn.Config{URL: "sqlite:///nowhere/at/all.db"})) // never used
	})
}

// TestCloseWaits shows that Close waits for running calls.
func TestCloseWaits(t *testing.T) {
	eachURL(t, func(t *testing.T, dsn string) {
		c := open(t, sqlconn.Config{URL: dsn})
		began, end, result := make(chan struct{}), make(chan struct{}), make(chan error, 1)
		go func() {
			result <- c.Update(testwait.Long(t), func(ctx context.Context, tx *sqlconn.Tx) error {
				close(began)
				<-end
				_, err := tx.Exec(ctx, "INSERT INTO t (id) VALUES (1)")
				return err
			})
		}()
		<-began
		short, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
		defer cancel()
		for what, end := range map[string]func(ctx context.Context) error{"Conn": c.Close, "DB": sqlconn.DBOf(c).Close} {
			if err := end(short); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("Close of a busy %s returned %v", what, err)
			}
		}
		close(end)
		if err := <-result; err != nil {
			t.Errorf("what was under way: %v", err)
		}
		shut(t, c)
		if n := number(t, open(t, sqlconn.Config{URL: dsn}), "SELECT count(*) FROM t"); n != 1 {
			t.Errorf("%d rows, want 1", n)
		}
	})
}

// TestCloseEndsPing shows that Close ends a call that waits for a silent server, although a
// connection is free: the pool asks the server first. This pool asks each time, others after a
// second without use.
func TestCloseEndsPing(t *testing.T) {
	p := testserver.RequirePostgres(t)
	proxy := testserver.NewProxy(t, p.Addr())
	cfg, err := pgxpool.ParseConfig(strings.Replace(pgURL(t, p), p.Addr(), proxy.Addr(), 1))
	if err != nil {
		t.Fatal(err)
	}
	pings := make(chan struct{}, 10)
	cfg.ShouldPing = func(context.Context, pgxpool.ShouldPingParams) bool {
		pings <- struct{}{}
		return true
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	if err := pool.Ping(testwait.Long(t)); err != nil { // a connection is free from now on
		t.Fatal(err)
	}
	for len(pings) > 0 {
		<-pings
	}
	db, err := sqlconn.Open(postgres.Driver{Pool: pool}, sqlconn.Config{Timeout: 2 * time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	c := db.Conn("test")
	defer shut(t, c)
	proxy.BlackHole(true, true)
	defer proxy.Heal() // the end of the pool waits for the server
	result := make(chan error, 1)
	go func() {
		result <- c.View(context.Background(), func(ctx context.Context, tx *sqlconn.Tx) error {
			return tx.Row(ctx, "SELECT 1").Scan(new(int))
		})
	}()
	<-pings
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := c.Close(ctx); err != nil {
		t.Errorf("Close: %v", err)
	}
	select {
	case err := <-result:
		if !errors.Is(err, sqlconn.ErrClosed) {
			t.Errorf("a call that waits for the server returned %v", err)
		}
	case <-ctx.Done():
		t.Error("a call still waits for the server a minute after Close")
	}
}

// TestCloseInTheBackground shows that one call of Close ends everything, even if its ctx has ended.
func TestCloseInTheBackground(t *testing.T) {
	eachURL(t, func(t *testing.T, dsn string) {
		before := goleak.IgnoreCurrent()
		c, err := connect(sqlconn.Config{URL: dsn, Backoff: quick})
		if err != nil {
			t.Fatal(err)
		}
		w := c.Watch(0, "topic")
		defer w.Close()
		number(t, c, "SELECT count(*) FROM t")
		run(t, c, "INSERT INTO t (id) VALUES (1)")
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		if err := sqlconn.CloseAll(ended, c); !errors.Is(err, context.Canceled) {
			t.Errorf("Close with a ctx that has ended: %v", err)
		}
		testwait.Until(t, "that no goroutine is left", func() bool { return goleak.Find(before) == nil })
	})
}

// TestCloseTogether shows that several callers can close at once. A caller whose ctx ends leaves no
// work for the others.
func TestCloseTogether(t *testing.T) {
	for range 300 {
		c := open(t, sqlconn.Config{URL: liteURL(t), Readers: 2})
		if err := c.View(testwait.Long(t), func(context.Context, *sqlconn.Tx) error { return nil }); err != nil {
			t.Fatal(err)
		}
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				if i%2 == 0 {
					_ = sqlconn.CloseAll(ended, c)
				}
				shut(t, c)
			})
		}
		wg.Wait()
		if t.Failed() {
			return
		}
	}
}

func TestNow(t *testing.T) {
	each(t, func(t *testing.T, c *sqlconn.Conn) {
		before := time.Now().Add(-2 * time.Millisecond)
		var us int64
		err := c.View(testwait.Long(t), func(ctx context.Context, tx *sqlconn.Tx) (err error) {
			us, err = tx.Now(ctx)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		if now := sqlconn.Time(us); now.Before(before) || now.After(time.Now()) || now.Location() != time.UTC {
			t.Errorf("the database's time is %v, not between %v and now", now, before)
		}
	})
}

func TestMicros(t *testing.T) {
	at := time.Unix(5, 1_500)
	if us := sqlconn.Micros(at); us != 5_000_002 {
		t.Errorf("Micros rounds to %d, want 5000002: up, so that nothing is early", us)
	}
	if !sqlconn.Time(sqlconn.Micros(time.Time{})).IsZero() {
		t.Error("the zero time does not come back")
	}
	if got := sqlconn.Time(sqlconn.Micros(time.Unix(-3, 7_000))); !got.Equal(time.Unix(-3, 7_000)) {
		t.Errorf("a time before 1970 comes back as %v", got)
	}
}

// TestRelaxed shows that a commit of SQLite skips the wait for the disk only if all calls that
// share it are relaxed.
func TestRelaxed(t *testing.T) {
	c := open(t, sqlconn.Config{URL: liteURL(t)})
	level := func(do func(context.Context, sqlconn.Func) error, then func()) (s string) {
		err := do(testwait.Long(t), func(ctx context.Context, tx *sqlconn.Tx) error {
			err := tx.Row(ctx, "PRAGMA synchronous").Scan(&s)
			then()
			return err
		})
		if err != nil {
			t.Error(err)
		}
		return s
	}
	nothing := func() {}
	for range 2 {
		if full, normal := level(c.Update, nothing), level(c.Relaxed, nothing); full != "2" || normal != "1" {
			t.Errorf("synchronous is %s for Update and %s for Relaxed, want 2 and 1", full, normal)
		}
	}
	// While the first call holds the file, a relaxed and another one wait and share the next commit.
	var wg sync.WaitGroup
	var relaxed, single string
	level(c.Update, func() {
		wg.Go(func() { relaxed = level(c.Relaxed, nothing) })
		wg.Go(func() { single = level(c.Single, nothing) })
		testwait.Until(t, "both wait", func() bool { return sqlconn.Queued(c) == 2 })
	})
	wg.Wait()
	if relaxed != "2" || single != "2" {
		t.Errorf("synchronous is %s and %s in a shared commit, want 2", relaxed, single)
	}
}

package sqlresults_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/swarmiji/swarmiji/internal/sqlconn"
	"github.com/swarmiji/swarmiji/internal/sqlconn/sqltest"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/resultstore/sqlresults"
	"github.com/swarmiji/swarmiji/task"
)

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		child()
		return
	}
	// Three suites with a database are slow under the race detector, so they use fewer histories
	// unless a flag asks for more.
	flag.Parse()
	asked := testserver.IsThorough()
	flag.Visit(func(f *flag.Flag) { asked = asked || f.Name == "rapid.checks" })
	if !asked {
		_ = flag.Set("rapid.checks", "25")
	}
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction(testserver.Reaper))
}

func open(t testing.TB, cfg sqlresults.Config) *sqlresults.Store {
	t.Helper()
	cfg.Logger = slog.New(slog.DiscardHandler)
	s, err := sqlresults.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// within returns a ctx that ends after d, far later than the expected event.
func within(t testing.TB, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

func urlIn(dir string) string {
	u := url.URL{Scheme: "sqlite", Path: filepath.Join(dir, "results.db")}
	return u.String()
}

func fileURL(t testing.TB) string { return urlIn(t.TempDir()) }

// memoryDir returns a directory in memory if the system has one, because thousands of commits on a
// disk are slow.
func memoryDir(t testing.TB) string {
	dir, err := os.MkdirTemp("/dev/shm", "sqlresults") //nolint:usetesting // that one is on the disk
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// eachURL runs a test on a file and on PostgreSQL, each with an empty database.
func eachURL(t *testing.T, test func(t *testing.T, dsn string)) {
	t.Run("sqlite", func(t *testing.T) { test(t, fileURL(t)) })
	t.Run("postgres", func(t *testing.T) { test(t, database(t, testserver.RequirePostgres(t))) })
}

func database(t testing.TB, p *testserver.Postgres) string {
	t.Helper()
	u, err := p.Database(within(t, time.Minute), testserver.Namespace())
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// opened makes a store and closes it at the end of the test.
func opened(t testing.TB, cfg sqlresults.Config) *sqlresults.Store {
	t.Helper()
	s := open(t, cfg)
	t.Cleanup(func() { closed(t, s) })
	return s
}

// done returns a terminal record of task i as a consumer saves it.
func done(node string, i int) resultstore.Record {
	return resultstore.Record{
		ID: task.ID(fmt.Sprintf("task-%d", i)), Name: "add", State: task.StateSucceeded, Deliveries: 1,
		ContentType: "application/json", Result: []byte("3"), NodeID: "consumer", ReplyTo: node,
		StartedAt: time.UnixMilli(1_700_000_000_000).UTC(), FinishedAt: time.UnixMilli(1_700_000_000_005).UTC(),
	}
}

func save(t testing.TB, s *sqlresults.Store, rs ...resultstore.Record) {
	t.Helper()
	for _, r := range rs {
		if err := s.Save(within(t, 30*time.Second), r); err != nil {
			t.Fatalf("Save of %s: %v", r.ID, err)
		}
	}
}

func notify(t testing.TB, s *sqlresults.Store, node string) resultstore.Notifications {
	t.Helper()
	n, err := s.Notify(within(t, 30*time.Second), node)
	if err != nil {
		t.Fatalf("Notify: %v", err)
	}
	return n
}

// receive receives n records and returns their ids.
func receive(t testing.TB, from resultstore.Notifications, n int) []task.ID {
	t.Helper()
	ids := make([]task.ID, n)
	for i := range ids {
		r, err := from.Receive(within(t, 30*time.Second))
		if err != nil {
			t.Fatalf("Receive after %d of %d: %v", i, n, err)
		}
		ids[i] = r.ID
	}
	return ids
}

// rows returns the number of rows of a table, expired or not.
func rows(t testing.TB, conn *sqlconn.Conn, table string) (n int) {
	t.Helper()
	err := conn.View(within(t, 30*time.Second), func(ctx context.Context, tx *sqlconn.Tx) error {
		return tx.Row(ctx, "SELECT count(*) FROM "+table).Scan(&n)
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// beside opens another connection to the database of a store.
func beside(t testing.TB, dsn string) *sqlconn.Conn {
	t.Helper()
	conn := sqltest.Conn(t, dsn)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

// until waits until ok returns true.
func until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !ok(); {
		if time.Now().After(end) {
			t.Fatal("not in time: " + what)
		}
		<-time.After(5 * time.Millisecond)
	}
}

func TestNewRefuses(t *testing.T) {
	_, err := sqlresults.New(sqlresults.Config{
		Namespace: "a.b", TTL: -1, Sweep: time.Microsecond, MaxResult: 1 << 30, MaxNotice: -1,
	})
	if err == nil {
		t.Fatal("it is taken")
	}
	for _, want := range []string{"DB must come from", "Namespace must", "TTL is negative", "Sweep is shorter", "MaxResult is above", "MaxNotice is negative"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v says nothing of %q", err, want)
		}
	}
}

// A store does not see the records of other namespaces in its database.
func TestNamespacesAreApart(t *testing.T) {
	dsn := fileURL(t)
	a, b := opened(t, sqlresults.Config{DB: sqltest.Open(t, dsn), Namespace: "a"}), opened(t, sqlresults.Config{DB: sqltest.Open(t, dsn)})
	n := notify(t, b, "node")
	ctx := within(t, 30*time.Second)
	save(t, a, done("node", 1))
	if _, err := b.Load(ctx, "task-1"); !errors.Is(err, resultstore.ErrNotFound) {
		t.Errorf("Load in another namespace: %v", err)
	}
	if err := b.Delete(ctx, "task-1"); err != nil {
		t.Fatal(err)
	}
	save(t, b, done("node", 2))
	if ids := receive(t, n, 1); ids[0] != "task-2" {
		t.Errorf("received %v, of another namespace", ids)
	}
	if r, err := a.Load(ctx, "task-1"); err != nil || !cmp.Equal(r, done("node", 1)) {
		t.Errorf("%v, %v", r, err)
	}
}

// A sweep deletes all expired rows, a batch in each transaction, and leaves the others.
func TestSweep(t *testing.T) {
	eachURL(t, func(t *testing.T, dsn string) {
		const many, batch = 50, 20
		s, conn := opened(t, sqlresults.Config{DB: sqltest.Open(t, dsn), Sweep: time.Hour}), beside(t, dsn)
		save(t, s, done("", -1)) // makes the tables, and starts a sweep that finds nothing
		sqlresults.Swept(s)
		ctx := within(t, time.Minute)
		var wg sync.WaitGroup
		for worker := range 8 {
			wg.Go(func() {
				for i := worker; i < many; i += 8 {
					r := done("", i)
					r.TTL = time.Millisecond
					_, err := s.Arrive(ctx, resultstore.Arrival{Group: "group", Index: i, Record: r, TTL: time.Second / 2, Wait: time.Second / 2})
					_, berr := s.Begin(ctx, r.ID, "copy", time.Millisecond)
					cerr := s.SaveCheckpoint(ctx, resultstore.Attempt{ID: r.ID, TTL: time.Millisecond}, resultstore.Checkpoint{Name: "a"})
					if err := errors.Join(err, berr, cerr, s.Save(ctx, r)); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		if _, err := s.Arrive(ctx, resultstore.Arrival{Group: "stays", Record: done("", 0)}); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Begin(ctx, "stays", "copy", 0); err != nil {
			t.Fatal(err)
		}
		if err := s.SaveCheckpoint(ctx, resultstore.Attempt{ID: "stays"}, resultstore.Checkpoint{Name: "a"}); err != nil {
			t.Fatal(err)
		}
		if n := rows(t, conn, "swarmiji_result"); n != many+1 {
			t.Errorf("%d rows before anything was swept", n)
		}
		until(t, "the group has expired", func() bool {
			return rows(t, conn, "swarmiji_result_group WHERE id = 'group' AND expires > "+conn.Dialect().Now()) == 0
		})
		sqlresults.Sweep(s, batch)
		for _, table := range []string{"swarmiji_result", "swarmiji_result_begun", "swarmiji_result_group", "swarmiji_result_member", "swarmiji_result_checkpoint"} {
			if n := rows(t, conn, table); n != 1 {
				t.Errorf("%s has %d rows, want the one that has not expired", table, n)
			}
		}
	})
}

// A store that writes sweeps by itself until it is closed.
func TestSweepsByItself(t *testing.T) {
	dsn := fileURL(t)
	s, conn := opened(t, sqlresults.Config{DB: sqltest.Open(t, dsn), Sweep: time.Millisecond}), beside(t, dsn)
	short := done("", 1)
	short.TTL = time.Millisecond
	save(t, s, short)
	i := 1
	until(t, "the expired row is deleted", func() bool {
		i++
		save(t, s, done("", i))
		return rows(t, conn, "swarmiji_result") == i-1
	})
}

// A stream reads the records saved meanwhile in pages, each record once, and large records one by
// one.
func TestPages(t *testing.T) {
	eachURL(t, func(t *testing.T, dsn string) {
		submitter, worker := opened(t, sqlresults.Config{DB: sqltest.Open(t, dsn), MaxNotice: 1000}), opened(t, sqlresults.Config{DB: sqltest.Open(t, dsn)})
		n := notify(t, submitter, "node")
		const many = 2*sqlresults.PageSize + 40
		var want []task.ID
		var wg sync.WaitGroup
		for i := range many {
			want = append(want, done("node", i).ID)
		}
		for w := range 8 {
			wg.Go(func() {
				for i := w; i < many; i += 8 {
					r := done("node", i)
					if i%50 == 0 {
						r.Result = make([]byte, 2000)
					}
					if err := worker.Save(within(t, time.Minute), r); err != nil {
						t.Error(err)
					}
				}
			})
		}
		got := receive(t, n, 5) // while other goroutines save
		wg.Wait()
		gone := done("node", many)
		gone.Result = make([]byte, 2000)
		save(t, worker, gone)
		if err := worker.Delete(within(t, time.Minute), gone.ID); err != nil {
			t.Fatal(err)
		}
		got = append(got, receive(t, n, many-5)...)
		slices.Sort(got)
		slices.Sort(want)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("received (-want +got):\n%s", diff)
		}
		save(t, worker, done("node", many+1))
		if id := receive(t, n, 1)[0]; id != done("node", many+1).ID {
			t.Errorf("then %s came", id)
		}
	})
}

// PostgreSQL's transactions do not become visible in the order in which they began. A stream that
// has read a later one still reads the earlier one.
func TestCommitOrder(t *testing.T) {
	dsn := database(t, testserver.RequirePostgres(t))
	s, conn := opened(t, sqlresults.Config{DB: sqltest.Open(t, dsn)}), beside(t, dsn)
	n := notify(t, s, "node")
	begun, commit, ended := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	value, later := done("node", 2), done("node", 1)
	save(t, s, value)
	receive(t, n, 1)
	go func() {
		ended <- conn.Update(within(t, time.Minute), func(ctx context.Context, tx *sqlconn.Tx) error {
			_, err := tx.Exec(ctx, `UPDATE swarmiji_result SET xact = pg_current_xact_id() WHERE id = $1`, string(value.ID))
			begun <- struct{}{}
			<-commit
			tx.Notify("results default node")
			return err
		})
	}()
	<-begun
	save(t, s, later)
	if id := receive(t, n, 1)[0]; id != later.ID {
		t.Errorf("received %s, want the one that is committed", id)
	}
	close(commit)
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if id := receive(t, n, 1)[0]; id != value.ID {
		t.Errorf("received %s, want the one that was committed last", id)
	}
}

// TestHeldTransaction shows that an open transaction does not make a stream read rows again. The
// rows that it saves arrive when it is committed.
func TestHeldTransaction(t *testing.T) {
	dsn := database(t, testserver.RequirePostgres(t))
	db := sqltest.Open(t, dsn)
	s, worker, other := open(t, sqlresults.Config{DB: db}), opened(t, sqlresults.Config{DB: sqltest.Open(t, dsn)}), beside(t, dsn+"&idle_in_transaction_session_timeout=0")
	n := notify(t, s, "node")
	last := done("node", 1_000_000)
	save(t, worker, last)
	receive(t, n, 1)
	begun, commit, ended := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- other.Update(within(t, time.Minute), func(ctx context.Context, tx *sqlconn.Tx) error {
			if _, err := tx.Exec(ctx, `UPDATE swarmiji_result SET xact = pg_current_xact_id() WHERE id = $1`, string(last.ID)); err != nil {
				return err
			}
			close(begun)
			<-commit
			tx.Notify("results default node")
			return nil
		})
	}()
	<-begun
	const many, looks = 1000, 30
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			for i := w; i < many; i += 8 {
				if err := worker.Save(within(t, time.Minute), done("node", i)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	receive(t, n, many)
	wg.Wait()
	for i := range looks {
		save(t, worker, done("node", many+i))
		receive(t, n, 1)
	}
	close(commit)
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if id := receive(t, n, 1)[0]; id != last.ID {
		t.Errorf("received %s, want the one of the transaction that was open for long", id)
	}
	closed(t, s)
	// The server counts a session's reads when the session ends.
	if err := db.Close(within(t, 20*time.Second)); err != nil {
		t.Error(err)
	}
	var read int64
	until(t, "the server counts what was read", func() bool {
		err := other.View(within(t, time.Minute), func(ctx context.Context, tx *sqlconn.Tx) error {
			return tx.Row(ctx, "SELECT coalesce(idx_tup_fetch, 0) + seq_tup_read FROM pg_stat_user_tables WHERE relname = 'swarmiji_result'").Scan(&read)
		})
		return err == nil && read >= many+looks
	})
	t.Logf("%d rows were read for %d records", read, many+looks)
	if read > many*looks/4 { // reading all rows each time would be more than four times that
		t.Errorf("%d rows were read for %d records that came one by one, beside an open transaction", read, many+looks)
	}
}

// The store repeats a Save whose answer is lost, and the submitter receives the record once.
func TestLostAnswerIsAskedForAgain(t *testing.T) {
	p := testserver.RequirePostgres(t)
	dsn := database(t, p)
	proxy := testserver.NewProxy(t, p.Addr())
	submitter := opened(t, sqlresults.Config{DB: sqltest.Open(t, dsn)})
	consumer := opened(t, sqlresults.Config{DB: sqltest.Open(t, strings.Replace(dsn, p.Addr(), proxy.Addr(), 1)+"&pool_max_conns=1")})
	n := notify(t, submitter, "node")
	save(t, consumer, done("node", 0)) // after this the one connection has prepared the statement
	receive(t, n, 1)
	sqlresults.Swept(consumer)
	proxy.BlackHole(false, true)
	saved := make(chan error, 1)
	go func() { saved <- consumer.Save(within(t, time.Minute), done("node", 1)) }()
	until(t, "the server has committed", func() bool {
		_, err := submitter.Load(within(t, time.Minute), "task-1")
		return err == nil
	})
	select {
	case err := <-saved:
		t.Fatalf("Save returned %v before its answer could come", err)
	default:
	}
	proxy.Heal() // closes the connection
	if err := <-saved; err != nil {
		t.Fatalf("Save whose answer was lost: %v", err)
	}
	save(t, consumer, done("node", 2))
	if got := receive(t, n, 2); got[0] != "task-1" || got[1] != "task-2" {
		t.Errorf("received %v", got)
	}
}

// The name of a copy comes from a message and may be any bytes.
func TestAnyNameOfACopy(t *testing.T) {
	eachURL(t, func(t *testing.T, dsn string) {
		s := opened(t, sqlresults.Config{DB: sqltest.Open(t, dsn)})
		for i, which := range []string{"", "a\x00b", "\xff\xfe", "ä'\"\\"} {
			id := task.ID(fmt.Sprint("copy-", i))
			for _, c := range []struct {
				which string
				first bool
			}{{which, true}, {which, true}, {which + "x", false}} {
				if first, err := s.Begin(within(t, time.Minute), id, c.which, 0); err != nil || first != c.first {
					t.Errorf("Begin of %q: %v, %v", c.which, first, err)
				}
			}
		}
	})
}

package postgres_test

import (
	"context"
	"errors"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/goleak"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/broker/sqlbroker"
	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/events/sqlevents"
	"github.com/swarmiji/swarmiji/internal/sqlconn"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/internal/testwait"
	"github.com/swarmiji/swarmiji/jobs/jobstore"
	"github.com/swarmiji/swarmiji/jobs/sqljobs"
	"github.com/swarmiji/swarmiji/limit"
	"github.com/swarmiji/swarmiji/limit/sqllimit"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/resultstore/sqlresults"
	"github.com/swarmiji/swarmiji/schedule/sqlschedule"
	"github.com/swarmiji/swarmiji/sqldb"
	"github.com/swarmiji/swarmiji/sqldb/postgres"
	"github.com/swarmiji/swarmiji/task"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction(testserver.Reaper))
}

var quick = task.Backoff{Base: 5 * time.Millisecond, Max: 50 * time.Millisecond}

// database returns the URL of a new database of the shared server.
func database(t testing.TB) string {
	t.Helper()
	u, err := testserver.RequirePostgres(t).Database(testwait.Long(t), testserver.Namespace())
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// opened returns db and closes it at the end of the test.
func opened(t testing.TB, db sqldb.DB, err error) sqldb.DB {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closed(t, db) })
	return db
}

func open(t testing.TB, url string, c postgres.Config) sqldb.DB {
	t.Helper()
	c.Backoff = quick
	db, err := postgres.Open(url, c)
	return opened(t, db, err)
}

func closed(t testing.TB, c interface {
	Close(ctx context.Context) error
},
) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	if err := c.Close(ctx); err != nil {
		t.Errorf("Close: %v", err)
	}
}

// dial returns a connection of the test's own.
func dial(t testing.TB, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(testwait.Long(t), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func exec(t testing.TB, conn *pgx.Conn, query string) {
	t.Helper()
	if _, err := conn.Exec(testwait.Long(t), query); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
}

func text(t testing.TB, conn *pgx.Conn, query string) (s string) {
	t.Helper()
	if err := conn.QueryRow(testwait.Long(t), query).Scan(&s); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return s
}

// adapters are one adapter of each kind on a database.
type adapters struct {
	broker   *sqlbroker.Broker
	results  *sqlresults.Store
	events   *sqlevents.Bus
	limits   *sqllimit.Limiter
	jobs     *sqljobs.Store
	schedule *sqlschedule.Store
}

func adaptersOf(t testing.TB, db sqldb.DB) (a adapters) {
	t.Helper()
	var errs [6]error
	a.broker, errs[0] = sqlbroker.New(sqlbroker.Config{DB: db})
	a.results, errs[1] = sqlresults.New(sqlresults.Config{DB: db})
	a.jobs, errs[2] = sqljobs.New(sqljobs.Config{DB: db})
	a.schedule, errs[3] = sqlschedule.New(sqlschedule.Config{DB: db})
	a.events, errs[4] = sqlevents.New(sqlevents.Config{DB: db})
	a.limits, errs[5] = sqllimit.New(sqllimit.Config{DB: db})
	if err := errors.Join(errs[:]...); err != nil {
		t.Fatal(err)
	}
	return a
}

func (a adapters) close(t testing.TB) {
	for _, c := range []interface {
		Close(ctx context.Context) error
	}{a.broker, a.results, a.events, a.limits, a.jobs, a.schedule} {
		closed(t, c)
	}
}

// use runs calls of all adapters: a message goes through queue, a result is stored, an entry is
// looked for, a job is stored.
func (a adapters) use(t testing.TB, queue string) {
	t.Helper()
	ctx := testwait.Long(t)
	s, err := a.broker.Subscribe(ctx, queue, broker.SubscribeOptions{Prefetch: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer closed(t, s)
	if err := a.broker.Publish(ctx, queue, &broker.Message{ID: "one", Body: []byte(queue)}); err != nil {
		t.Fatal(err)
	}
	d, err := s.Receive(ctx)
	if err != nil || string(d.Message().Body) != queue {
		t.Fatalf("received %v, %v", d, err)
	}
	if err := d.Ack(ctx); err != nil {
		t.Fatal(err)
	}
	if err := a.results.Save(ctx, resultstore.Record{ID: "one", State: task.StateSucceeded}); err != nil {
		t.Fatal(err)
	}
	if err := a.events.Publish(ctx, events.Event{Type: events.TaskStarted, TaskID: "one"}); err != nil {
		t.Fatal(err)
	}
	permit := limit.Permit{Key: "one", Max: 1}
	if d, err := a.limits.Acquire(ctx, queue, time.Minute, permit); err != nil || !d.Granted {
		t.Fatalf("%+v, %v", d, err)
	}
	if err := a.limits.Release(ctx, queue, permit); err != nil {
		t.Fatal(err)
	}
	if _, err := a.schedule.Due(ctx, 1); err != nil {
		t.Fatal(err)
	}
	if err := a.jobs.View(ctx, func(ctx context.Context, tx jobstore.Tx) error {
		_, err := tx.Now(ctx)
		return err
	}); err != nil {
		t.Fatal(err)
	}
}

// TestConnections shows that all adapters of a DB share its connections and one that listens, and
// that closing the adapters leaves the DB open.
func TestConnections(t *testing.T) {
	url := database(t)
	db := open(t, url+"&pool_max_conns=2", postgres.Config{Name: "shared"})
	a := adaptersOf(t, db)
	defer a.schedule.Watch(func() {})()
	defer a.jobs.Watch(func([]string) {})()
	a.use(t, "q")
	s, err := a.broker.Subscribe(testwait.Long(t), "q", broker.SubscribeOptions{Prefetch: 1})
	if err != nil {
		t.Fatal(err)
	}
	other := dial(t, url)
	if n := text(t, other, "SELECT count(*)::text FROM pg_stat_activity WHERE application_name = 'shared'"); n != "2" && n != "3" {
		t.Errorf("%s sessions, want at most 2 and one that listens", n)
	}
	if n := text(t, other, "SELECT count(*)::text FROM pg_stat_activity WHERE application_name = 'shared' AND query LIKE 'LISTEN%'"); n != "1" {
		t.Errorf("%s sessions listen, want 1", n)
	}
	closed(t, s)
	a.close(t)
	again := adaptersOf(t, db)
	again.use(t, "other")
	if err := a.broker.Publish(testwait.Long(t), "q", &broker.Message{ID: "late"}); !errors.Is(err, broker.ErrClosed) {
		t.Errorf("a closed adapter of an open DB: %v, want %v", err, broker.ErrClosed)
	}
	again.close(t)
}

// TestSchemas shows that two schemas in one database are separate, whatever the search path of the
// sessions, and that nothing is stored outside of them.
func TestSchemas(t *testing.T) {
	at := database(t)
	conn := dial(t, at)
	exec(t, conn, `CREATE SCHEMA elsewhere`)
	exec(t, conn, `ALTER DATABASE `+pgx.Identifier{conn.Config().Database}.Sanitize()+` SET search_path TO elsewhere`)
	one, two := adaptersOf(t, open(t, at, postgres.Config{Schema: "one"})), adaptersOf(t, open(t, at+"&schema=Two-2", postgres.Config{}))
	defer two.close(t)
	defer one.close(t)
	one.use(t, "q")
	if _, err := two.results.Load(testwait.Long(t), "one"); !errors.Is(err, resultstore.ErrNotFound) {
		t.Errorf("the result of the other schema: %v", err)
	}
	two.use(t, "q")
	const tables = `SELECT coalesce(string_agg(DISTINCT schemaname, ' ' ORDER BY schemaname), '') FROM pg_tables WHERE tablename LIKE 'swarmiji%'`
	if got := text(t, conn, tables); got != "Two-2 one" && got != "one Two-2" {
		t.Errorf("the tables are in the schemas %q", got)
	}
	exec(t, conn, `LISTEN "swarmiji.one"`)
	ctx := testwait.Long(t)
	if err := one.broker.Publish(ctx, "q", &broker.Message{ID: "two"}); err != nil {
		t.Fatal(err)
	}
	if n, err := conn.WaitForNotification(ctx); err != nil || n.Channel != "swarmiji.one" {
		t.Errorf("%v, %v", n, err)
	}
}

// TestRole shows that a role without the right to create tables works with existing tables. Without
// tables the error says what to do.
func TestRole(t *testing.T) {
	at := database(t)
	conn := dial(t, at)
	role := strings.ReplaceAll(testserver.Namespace(), "-", "_")
	exec(t, conn, "CREATE ROLE "+role+" LOGIN PASSWORD 'x'")
	t.Cleanup(func() { exec(t, conn, "DROP OWNED BY "+role+"; DROP ROLE "+role) })
	exec(t, conn, "CREATE SCHEMA app; GRANT USAGE ON SCHEMA app TO "+role)
	u, err := url.Parse(at)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword(role, "x")
	limited := open(t, u.String(), postgres.Config{Schema: "app"})
	if err := limited.Migrate(testwait.Long(t)); !errors.Is(err, sqlconn.ErrAccess) || !strings.Contains(err.Error(), "swarmiji migrate --up") {
		t.Errorf("without tables: %v", err)
	}
	db := open(t, at, postgres.Config{Schema: "app"})
	script, err := db.Migrations()
	if err != nil {
		t.Fatal(err)
	}
	exec(t, conn, script)
	exec(t, conn, "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA app TO "+role)
	if err := db.Migrate(testwait.Long(t)); err != nil {
		t.Errorf("after the script: %v", err)
	}
	if err := limited.Migrate(testwait.Long(t)); err != nil {
		t.Errorf("with all tables: %v", err)
	}
	a := adaptersOf(t, limited)
	defer a.close(t)
	a.use(t, "q")
}

// TestFromPool shows that a DB uses the user's pool, leaves its sessions as they are, and leaves it
// open.
func TestFromPool(t *testing.T) {
	for _, mode := range []string{"cache_statement", "cache_describe", "exec"} {
		t.Run(mode, func(t *testing.T) {
			at := database(t)
			pool, err := pgxpool.New(testwait.Long(t), at+"&pool_max_conns=2&default_query_exec_mode="+mode)
			if err != nil {
				t.Fatal(err)
			}
			defer pool.Close()
			db, err := postgres.FromPool(pool, postgres.Config{Backoff: quick})
			if mode == "exec" {
				if err == nil || !strings.Contains(err.Error(), "QueryExecModeCacheDescribe") {
					t.Errorf("%v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			a := adaptersOf(t, db)
			a.use(t, "q")
			within(t, db, map[string]string{"enable_seqscan": "off", "plan_cache_mode": "force_generic_plan"})
			a.close(t)
			closed(t, db)
			for range 4 {
				var scan string
				if err := pool.QueryRow(testwait.Long(t), "SHOW enable_seqscan").Scan(&scan); err != nil || scan != "on" {
					t.Errorf("a session of the user has enable_seqscan=%s, %v", scan, err)
				}
			}
		})
	}
	if _, err := postgres.FromPool(nil, postgres.Config{}); err == nil {
		t.Error("no pool is accepted")
	}
}

// within compares parameters of the server in transactions and single statements of db.
func within(t testing.TB, db sqldb.DB, want map[string]string) {
	t.Helper()
	c, err := sqlconn.Of(db, "")
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range want {
		var got string
		fn := func(ctx context.Context, tx *sqlconn.Tx) error {
			return tx.Row(ctx, "SELECT current_setting($1)", name).Scan(&got)
		}
		for kind, do := range map[string]func(context.Context, sqlconn.Func) error{"Update": c.Update, "Single": c.Single, "View": c.View} {
			if err := do(testwait.Long(t), fn); err != nil || got != value {
				t.Errorf("%s: %s is %s, %v; want %s", kind, name, got, err, value)
			}
		}
	}
}

// TestPgBouncer shows that all adapters work through PgBouncer, with the parameters of the URL.
// The sessions of the server stay unchanged.
func TestPgBouncer(t *testing.T) {
	b := testserver.RequirePgBouncer(t)
	direct := database(t)
	for name, c := range map[string]struct {
		more string
		cfg  postgres.Config
	}{
		"polled":   {"&pgbouncer=true&work_mem=5MB", postgres.Config{}},
		"listened": {"&work_mem=5MB", postgres.Config{PgBouncer: true, ListenURL: direct}},
	} {
		t.Run(name, func(t *testing.T) {
			at := b.URL(direct) + c.more
			here, there := open(t, at, c.cfg), open(t, at, c.cfg)
			a, other := adaptersOf(t, here), adaptersOf(t, there)
			defer other.close(t)
			defer a.close(t)
			a.use(t, name)
			within(t, here, map[string]string{"enable_seqscan": "off", "work_mem": "5MB"})
			ctx := testwait.Long(t)
			news, err := other.results.Notify(ctx, name)
			if err != nil {
				t.Fatal(err)
			}
			defer closed(t, news)
			if err := a.results.Save(ctx, resultstore.Record{ID: task.ID(name), State: task.StateSucceeded, ReplyTo: name}); err != nil {
				t.Fatal(err)
			}
			if r, err := news.Receive(ctx); err != nil || r.ID != task.ID(name) {
				t.Errorf("%v, %v", r.ID, err)
			}
		})
	}
	conn := dial(t, b.URL(direct)+"&default_query_exec_mode=simple_protocol")
	for range 8 {
		if scan := text(t, conn, "SHOW enable_seqscan"); scan != "on" {
			t.Errorf("a session of the server was left with enable_seqscan=%s", scan)
		}
	}
}

// TestPrimary shows that a URL with several hosts leads to the server that takes writes, also after
// the servers have changed their roles.
func TestPrimary(t *testing.T) {
	one, two := testserver.OwnPostgres(t, testserver.PostgresConfig{}), testserver.OwnPostgres(t, testserver.PostgresConfig{})
	urls := map[*testserver.Postgres]string{one: one.URL(), two: strings.Replace(one.URL(), one.Addr(), two.Addr(), 1)}
	role := func(p *testserver.Postgres, readOnly string) {
		t.Helper()
		conn := dial(t, urls[p]+"&default_transaction_read_only=off")
		exec(t, conn, "ALTER SYSTEM SET default_transaction_read_only = "+readOnly)
		exec(t, conn, "SELECT pg_reload_conf()")
		testwait.Until(t, "the server has read its configuration", func() bool {
			return text(t, dial(t, urls[p]), "SHOW default_transaction_read_only") == readOnly
		})
	}
	role(one, "on")
	// The second server knows another password.
	if err := two.Exec(testwait.Long(t), "postgres", "ALTER ROLE "+two.User()+" PASSWORD '"+one.Password()+"'"); err != nil {
		t.Fatal(err)
	}
	at := strings.Replace(one.URL(), one.Addr(), one.Addr()+","+two.Addr(), 1) + "&target_session_attrs=read-write"
	c, err := sqlconn.Of(open(t, at, postgres.Config{}), "")
	if err != nil {
		t.Fatal(err)
	}
	write := func() (addr string) {
		t.Helper()
		if err := c.Update(testwait.Long(t), func(ctx context.Context, tx *sqlconn.Tx) error {
			if _, err := tx.Exec(ctx, "CREATE TABLE IF NOT EXISTS t (n int)"); err != nil {
				return err
			}
			return tx.Row(ctx, "SELECT '127.0.0.1:' || inet_server_port()").Scan(&addr)
		}); err != nil {
			t.Fatal(err)
		}
		return addr
	}
	if got := write(); got != two.Addr() {
		t.Errorf("wrote to %s, want the second server, %s", got, two.Addr())
	}
	role(two, "on")
	role(one, "off")
	if got := write(); got != one.Addr() {
		t.Errorf("after the change wrote to %s, want the first server, %s", got, one.Addr())
	}
}

// TestTLSByDefault shows that the error for a server without TLS says what to do. The package
// internal/sqlconn/postgres has tests of the default.
func TestTLSByDefault(t *testing.T) {
	p := testserver.RequirePostgres(t)
	db := open(t, strings.Replace(p.URL(), "sslmode=disable", "sslmode=verify-full", 1), postgres.Config{})
	testwait.Until(t, "the error names the parameter and the server", func() bool {
		// on a busy machine the answer may come too late
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := db.Migrate(ctx)
		return err != nil && strings.Contains(err.Error(), "sslmode=disable") && strings.Contains(err.Error(), p.Addr())
	})
}

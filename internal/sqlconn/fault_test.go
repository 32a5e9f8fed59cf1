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

	"github.com/swarmiji/swarmiji/internal/sqlconn"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/internal/testwait"
)

// TestFileLockedByAnotherProcess shows that a call waits until its ctx ends while another process
// has the file locked. It then has no effect. After the lock is free, calls succeed.
func TestFileLockedByAnotherProcess(t *testing.T) {
	dsn := liteURL(t)
	c := open(t, sqlconn.Config{URL: dsn})
	run(t, c, "CREATE TABLE t (id bigint PRIMARY KEY NOT NULL, v text)")
	other := start(t, "lock", dsn)
	if l := other.line(t); l != "locked" {
		t.Fatal(l)
	}
	err := tryExec(testwait.Brief(t), c, "INSERT INTO t (id) VALUES (1)")
	if !errors.Is(err, sqlconn.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("while it is locked: %v, want %v", err, sqlconn.ErrUnavailable)
	}
	if n := number(t, c, "SELECT count(*) FROM t"); n != 0 {
		t.Errorf("a reader sees %d rows, want none: it is not held up, and sees what is committed", n)
	}
	result := make(chan error, 1)
	go func() { result <- tryExec(testwait.Long(t), c, "INSERT INTO t (id) VALUES (2)") }()
	select {
	case err := <-result:
		t.Errorf("a write passed the lock: %v", err)
	case <-time.After(400 * time.Millisecond):
	}
	other.stop()
	if err := <-result; err != nil {
		t.Errorf("when the lock was free: %v", err)
	}
	if n := number(t, c, "SELECT sum(id) FROM t WHERE id > 0"); n != 2 {
		t.Errorf("the ids sum up to %d, want 2", n)
	}
}

// TestKilledInMidWrite shows that no committed row is lost when one of several writing processes is
// killed. The other processes continue.
func TestKilledInMidWrite(t *testing.T) {
	eachURL(t, func(t *testing.T, dsn string) {
		children := []*process{start(t, "write", dsn), start(t, "write", dsn)}
		for _, p := range children {
			for range 50 {
				p.line(t)
			}
		}
		_ = children[0].cmd.Process.Kill()
		for range 50 {
			children[1].line(t)
		}
		_ = children[1].cmd.Process.Kill()
		c := open(t, sqlconn.Config{URL: dsn})
		for i, p := range children {
			ids, errs := p.numbers()
			if errs != nil {
				t.Errorf("child %d: %v", i, errs)
			}
			for _, id := range ids {
				if number(t, c, "SELECT count(*) FROM t WHERE id = $1", id) != 1 {
					t.Fatalf("child %d: %d was committed, and is lost", i, id)
				}
			}
		}
		run(t, c, "INSERT INTO t (id) VALUES (1)")
	})
}

// TestPostgresKilled kills PostgreSQL repeatedly during transactions. Committed rows exist. Rows
// whose call failed with an error other than ErrIndeterminate do not. At the end each call
// succeeds.
func TestPostgresKilled(t *testing.T) {
	p := testserver.OwnPostgres(t, testserver.PostgresConfig{})
	c := open(t, sqlconn.Config{URL: pgURL(t, p)})
	run(t, c, "CREATE TABLE t (id bigint PRIMARY KEY NOT NULL, v text)")
	ctx, cancel := context.WithCancel(testwait.Long(t))
	defer cancel()
	var group sync.WaitGroup
	var next, done atomic.Int64
	var mu sync.Mutex
	committed, doubtful := map[int64]bool{}, map[int64]bool{}
	for range 8 {
		group.Go(func() {
			for ctx.Err() == nil {
				id := next.Add(1)
				write := c.Update
				if id%2 == 0 {
					write = c.Single
				}
				err := write(ctx, func(ctx context.Context, tx *sqlconn.Tx) error {
					_, err := tx.Exec(ctx, "INSERT INTO t (id) VALUES ($1)", id)
					return err
				})
				mu.Lock()
				switch {
				case err == nil:
					committed[id] = true
					done.Add(1)
				case errors.Is(err, sqlconn.ErrIndeterminate):
					doubtful[id] = true
				case !errors.Is(err, sqlconn.ErrUnavailable) || ctx.Err() == nil:
					t.Errorf("%d: %v", id, err)
				}
				mu.Unlock()
			}
		})
	}
	for range 2 {
		from := done.Load()
		testwait.UntilNil(t, "some are committed", func() error {
			if n := done.Load() - from; n < 30 {
				return fmt.Errorf("%d", n)
			}
			return nil
		})
		p.Kill()
		if err := p.Restart(testwait.Long(t)); err != nil {
			t.Fatal(err)
		}
	}
	from := done.Load()
	testwait.UntilNil(t, "it goes on", func() error {
		if done.Load() == from {
			return errors.New("nothing is committed")
		}
		return nil
	})
	cancel()
	group.Wait()
	found := map[int64]bool{}
	err := c.View(testwait.Long(t), func(ctx context.Context, tx *sqlconn.Tx) error {
		rows, err := tx.Query(ctx, "SELECT id FROM t")
		if err != nil {
			return err
		}
		for rows.Next() {
			var id int64
			if err := rows.Scan(&id); err != nil {
				return err
			}
			found[id] = true
		}
		return errors.Join(rows.Err(), rows.Close())
	})
	if err != nil {
		t.Fatal(err)
	}
	for id := range committed {
		if !found[id] {
			t.Errorf("%d was committed, and is lost", id)
		}
	}
	for id := range found {
		if !committed[id] && !doubtful[id] {
			t.Errorf("%d was not committed, and is there", id)
		}
	}
	t.Logf("%d committed, %d in doubt", len(committed), len(doubtful))
}

// TestLostBeforeCommit shows that the function runs again if the connection is lost before the
// commit.
func TestLostBeforeCommit(t *testing.T) {
	p := testserver.RequirePostgres(t)
	c := open(t, sqlconn.Config{URL: pgURL(t, p)})
	run(t, c, "CREATE TABLE t (id bigint PRIMARY KEY NOT NULL, v text)")
	runs := 0
	err := c.Update(testwait.Long(t), func(ctx context.Context, tx *sqlconn.Tx) error {
		runs++
		if _, err := tx.Exec(ctx, "INSERT INTO t (id) VALUES (1)"); err != nil {
			return err
		}
		if runs == 1 {
			if err := p.CloseAllConnections(ctx); err != nil {
				return err
			}
		}
		_, err := tx.Exec(ctx, "INSERT INTO t (id) VALUES (2)")
		return err
	})
	if err != nil || runs != 2 {
		t.Errorf("%v after %d runs, want success after 2", err, runs)
	}
	if n := number(t, c, "SELECT count(*) FROM t"); n != 2 {
		t.Errorf("%d rows, want 2", n)
	}
}

// TestCommitWithoutAnAnswer shows that a commit without an answer returns ErrIndeterminate. In this
// test it was committed.
func TestCommitWithoutAnAnswer(t *testing.T) {
	p := testserver.RequirePostgres(t)
	proxy := testserver.NewProxy(t, p.Addr())
	direct := pgURL(t, p)
	c := open(t, sqlconn.Config{URL: strings.Replace(direct, p.Addr(), proxy.Addr(), 1)})
	run(t, c, "CREATE TABLE t (id bigint PRIMARY KEY NOT NULL, v text)")
	ctx, cancel := context.WithTimeout(testwait.Long(t), 3*time.Second)
	defer cancel()
	runs := 0
	err := c.Update(ctx, func(ctx context.Context, tx *sqlconn.Tx) error {
		runs++
		_, err := tx.Exec(ctx, "INSERT INTO t (id) VALUES (1)")
		proxy.BlackHole(false, true)
		return err
	})
	if !errors.Is(err, sqlconn.ErrIndeterminate) || runs != 1 {
		t.Errorf("%v after %d runs, want %v", err, runs, sqlconn.ErrIndeterminate)
	}
	proxy.Heal()
	watch := open(t, sqlconn.Config{URL: direct})
	testwait.UntilNil(t, "the commit", func() error {
		if number(t, watch, "SELECT count(*) FROM t") != 1 {
			return errors.New("not there")
		}
		return nil
	})
}

// TestSilentServer shows that a call without a deadline gives up a silent server after Timeout.
func TestSilentServer(t *testing.T) {
	p := testserver.OwnPostgres(t, testserver.PostgresConfig{})
	c := open(t, sqlconn.Config{URL: p.URL() + "&connect_timeout=1", Timeout: 500 * time.Millisecond})
	run(t, c, "CREATE TABLE t (id bigint PRIMARY KEY NOT NULL, v text)")
	p.Pause()
	if err := tryExec(testwait.Brief(t), c, "INSERT INTO t (id) VALUES (1)"); !errors.Is(err, sqlconn.ErrUnavailable) {
		t.Errorf("a paused server: %v, want %v", err, sqlconn.ErrUnavailable)
	}
	result := make(chan error, 1)
	go func() { result <- tryExec(context.Background(), c, "INSERT INTO t (id) VALUES (2)") }()
	select {
	case err := <-result:
		t.Errorf("a paused server answered: %v", err)
	case <-time.After(1200 * time.Millisecond):
	}
	p.Resume()
	select {
	case err := <-result:
		// a commit that takes longer than Timeout on a busy machine
		if err != nil && !errors.Is(err, sqlconn.ErrIndeterminate) {
			t.Errorf("after Resume: %v", err)
		}
	case <-time.After(2 * time.Minute):
		t.Fatal("nothing after Resume")
	}
}

// TestDeadlock shows that the transaction that the server ends after a deadlock runs again.
func TestDeadlock(t *testing.T) {
	p := testserver.RequirePostgres(t)
	c := open(t, sqlconn.Config{URL: pgURL(t, p) + "&deadlock_timeout=100ms"})
	run(t, c, "CREATE TABLE t (id bigint PRIMARY KEY NOT NULL, v bigint)")
	run(t, c, "INSERT INTO t VALUES (1, 0), (2, 0)")
	var both sync.WaitGroup // until each transaction has locked its first row
	both.Add(2)
	var runs atomic.Int64
	results := make(chan error, 2)
	for i := range 2 {
		go func() {
			first := true
			results <- c.Update(testwait.Long(t), func(ctx context.Context, tx *sqlconn.Tx) error {
				runs.Add(1)
				if _, err := tx.Exec(ctx, "UPDATE t SET v = v + 1 WHERE id = $1", 1+i); err != nil {
					return err
				}
				if first {
					first = false
					both.Done()
					both.Wait()
				}
				_, err := tx.Exec(ctx, "UPDATE t SET v = v + 1 WHERE id = $1", 2-i)
				return err
			})
		}()
	}
	for range 2 {
		if err := <-results; err != nil {
			t.Error(err)
		}
	}
	if n := number(t, c, "SELECT sum(v) FROM t"); n != 4 || runs.Load() < 3 {
		t.Errorf("the sum is %d after %d runs, want 4 after 3", n, runs.Load())
	}
}

// TestNoSecretInErrors shows that the errors for a wrong password, and all others, contain no
// password.
func TestNoSecretInErrors(t *testing.T) {
	p := testserver.RequirePostgres(t)
	const secret = "pass-word-7"
	files, err := testserver.NewTLSFiles(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	trust, err := files.ClientConfig(false)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		cfg  sqlconn.Config
		want error
	}{
		"wrong password":   {sqlconn.Config{URL: "postgres://" + p.User() + ":" + secret + "@" + p.Addr() + "/postgres"}, sqlconn.ErrAccess},
		"no such database": {sqlconn.Config{URL: strings.Replace(p.URL(), "/postgres?", "/nowhere?", 1)}, sqlconn.ErrAccess},
		"nobody listens":   {sqlconn.Config{URL: "postgres://u:" + secret + "@127.0.0.1:1/x"}, sqlconn.ErrUnavailable},
		"no TLS there":     {sqlconn.Config{URL: "postgres://u:" + secret + "@" + p.Addr() + "/x?sslmode=verify-full"}, sqlconn.ErrUnavailable},
		"other authority":  {sqlconn.Config{URL: "postgres://u:" + secret + "@" + p.Addr() + "/x", TLS: trust}, sqlconn.ErrUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			err := tryExec(testwait.Brief(t), open(t, c.cfg), "SELECT 1")
			if !errors.Is(err, c.want) {
				t.Errorf("%v, want %v", err, c.want)
			}
			for _, s := range []string{secret, p.Password(), "postgres://"} {
				if strings.Contains(fmt.Sprintf("%v %+v", err, err), s) {
					t.Errorf("the error holds a secret: %v", err)
				}
			}
		})
	}
}

func TestTLS(t *testing.T) {
	files, err := testserver.NewTLSFiles(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	p := testserver.OwnPostgres(t, testserver.PostgresConfig{TLS: files})
	trust, err := files.ClientConfig(false)
	if err != nil {
		t.Fatal(err)
	}
	plain := strings.TrimSuffix(p.TLSURL(), "?sslmode=verify-full")
	for name, cfg := range map[string]sqlconn.Config{
		"of the configuration": {URL: plain, TLS: trust},
		"of the URL":           {URL: p.TLSURL() + "&sslrootcert=" + files.CA},
	} {
		t.Run(name, func(t *testing.T) {
			c := open(t, cfg)
			if n := number(t, c, "SELECT count(*) FROM pg_stat_ssl WHERE pid = pg_backend_pid() AND ssl"); n != 1 {
				t.Error("the session is not encrypted")
			}
		})
	}
	c := open(t, sqlconn.Config{URL: p.TLSURL()})
	if err := tryExec(testwait.Brief(t), c, "SELECT 1"); err == nil {
		t.Error("a certificate of an unknown authority is taken")
	}
	if trust.ServerName != "" {
		t.Error("the given configuration was changed")
	}
}

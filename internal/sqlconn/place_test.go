package sqlconn_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/internal/sqlconn"
	"github.com/swarmiji/swarmiji/internal/sqlconn/sqltest"
	"github.com/swarmiji/swarmiji/internal/testserver"
)

// SQLite continues with a file that was moved or deleted. The changes would be lost with it, so
// calls fail until the file is back.
func TestMovedFile(t *testing.T) {
	ctx := t.Context()
	dir := t.TempDir()
	file := filepath.Join(dir, "app.db")
	c := open(t, sqlconn.Config{URL: "sqlite://" + file})
	run := func(query string) sqlconn.Func {
		return func(ctx context.Context, tx *sqlconn.Tx) error {
			_, err := tx.Exec(ctx, query)
			return err
		}
	}
	if err := c.Update(ctx, run("CREATE TABLE t (n integer)")); err != nil {
		t.Fatal(err)
	}
	for name, step := range map[string]struct{ away, back func() error }{
		"moved": {
			func() error { return os.Rename(file, file+".old") },
			func() error { return os.Rename(file+".old", file) },
		},
		"replaced": {
			func() error {
				return errors.Join(os.Rename(file, file+".old"), os.WriteFile(file, nil, 0o600))
			},
			func() error { return os.Rename(file+".old", file) },
		},
	} {
		if err := step.away(); err != nil {
			t.Fatal(err)
		}
		for kind, call := range map[string]func(context.Context, sqlconn.Func) error{"Update": c.Update, "Single": c.Single, "Relaxed": c.Relaxed} {
			if err := call(ctx, run("INSERT INTO t VALUES (1)")); !errors.Is(err, sqlconn.ErrAccess) {
				t.Errorf("%s, the file is %s: %v, want ErrAccess", kind, name, err)
			}
		}
		if err := c.View(ctx, run("SELECT 1")); !errors.Is(err, sqlconn.ErrAccess) {
			t.Errorf("View, the file is %s: %v, want ErrAccess", name, err)
		}
		if err := step.back(); err != nil {
			t.Fatal(err)
		}
		if err := c.Update(ctx, run("INSERT INTO t VALUES (1)")); err != nil {
			t.Errorf("the %s file is back: %v", name, err)
		}
	}
}

// SQLite continues with a log that was deleted, and changes that it stores there are lost. So calls
// fail.
func TestDeletedLog(t *testing.T) {
	ctx := t.Context()
	file := filepath.Join(t.TempDir(), "app.db")
	c := open(t, sqlconn.Config{URL: "sqlite://" + file})
	insert := func(ctx context.Context, tx *sqlconn.Tx) error {
		_, err := tx.Exec(ctx, "INSERT INTO t VALUES (1)")
		return err
	}
	run(t, c, "CREATE TABLE t (n integer)")
	if err := c.Update(ctx, insert); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Remove(file+"-wal"), os.Remove(file+"-shm")); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := c.Update(ctx, insert); !errors.Is(err, sqlconn.ErrAccess) {
			t.Errorf("Update: %v, want ErrAccess", err)
		}
	}
	if err := c.View(ctx, insert); !errors.Is(err, sqlconn.ErrAccess) {
		t.Errorf("View: %v, want ErrAccess", err)
	}
}

// A link is as good as the path of its file, also if that file does not exist yet.
func TestLinkedFile(t *testing.T) {
	dir := t.TempDir()
	if err := errors.Join(
		os.Mkdir(filepath.Join(dir, "data"), 0o700), os.Symlink("data", filepath.Join(dir, "alias")),
		os.Symlink(filepath.Join("alias", "second"), filepath.Join(dir, "first")), os.Symlink("app.db", filepath.Join(dir, "data", "second")),
	); err != nil {
		t.Fatal(err)
	}
	linked := open(t, sqlconn.Config{URL: "sqlite://" + filepath.Join(dir, "first")})
	run(t, linked, "CREATE TABLE t (id bigint)")
	direct := open(t, sqlconn.Config{URL: "sqlite://" + filepath.Join(dir, "data", "app.db")})
	w := linked.Watch(time.Hour)
	defer w.Close()
	for range 25 { // the last poll alone would come after half a day
		change(t, direct, "a")
		if !heard(w, 20*time.Second) {
			t.Fatal("a change was not reported")
		}
	}
}

// A file with a relative path is that of the working directory in which the Conn was made.
func TestWorkingDirectory(t *testing.T) {
	ctx := t.Context()
	first, second := t.TempDir(), t.TempDir()
	t.Chdir(first)
	c := open(t, sqlconn.Config{URL: "sqlite:app.db"})
	now := func(ctx context.Context, tx *sqlconn.Tx) error { _, err := tx.Now(ctx); return err }
	if err := c.Update(ctx, now); err != nil {
		t.Fatal(err)
	}
	t.Chdir(second)
	if err := errors.Join(c.View(ctx, now), c.Update(ctx, now)); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(second, "app.db")); err == nil {
		t.Error("a second file was made")
	}
}

// A statement of its own has the isolation of a transaction, whatever the database's default.
func TestIsolationOfSingle(t *testing.T) {
	ctx := t.Context()
	srv := testserver.RequirePostgres(t)
	name := testserver.Namespace()
	url, err := srv.Database(ctx, name)
	if err == nil {
		err = srv.Exec(ctx, "postgres", `ALTER DATABASE "`+name+`" SET default_transaction_isolation = 'serializable'`)
	}
	if err != nil {
		t.Fatal(err)
	}
	c := open(t, sqlconn.Config{URL: url})
	for kind, call := range map[string]func(context.Context, sqlconn.Func) error{"Update": c.Update, "Single": c.Single, "Relaxed": c.Relaxed, "View": c.View} {
		var level string
		err := call(ctx, func(ctx context.Context, tx *sqlconn.Tx) error {
			return tx.Row(ctx, "SELECT current_setting('transaction_isolation')").Scan(&level)
		})
		if err != nil || level != "read committed" {
			t.Errorf("%s has the isolation %q, %v", kind, level, err)
		}
	}
}

// TestJoinOfAMovedFile joins a transaction of a file that was moved and replaced. Its commit would
// be lost with the moved file, so nothing is written.
func TestJoinOfAMovedFile(t *testing.T) {
	ctx := t.Context()
	file := filepath.Join(t.TempDir(), "app.db")
	url := "sqlite://" + file
	c := open(t, sqlconn.Config{URL: url})
	if err := migrate(ctx, c); err != nil {
		t.Fatal(err)
	}
	own := sqltest.Begin(t, url)
	if err := errors.Join(os.Rename(file, file+".old"), os.WriteFile(file, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	if err := join(ctx, c, own, 1); !errors.Is(err, sqlconn.ErrAccess) {
		t.Errorf("the file was moved: %v, want ErrAccess", err)
	}
	if n, err := own.Tx.Exec(ctx, "DELETE FROM swarmiji_j"); n != 0 || err != nil {
		t.Errorf("%d rows in the transaction, want 0; error %v", n, err)
	}
}

package sqlconn_test

import (
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"testing"
	"testing/fstest"

	"github.com/swarmiji/swarmiji/internal/sqlconn"
	"github.com/swarmiji/swarmiji/internal/testwait"
)

// files returns migrations that are equal in both dialects.
func files(texts ...string) fs.FS {
	m := fstest.MapFS{}
	for i, text := range texts {
		for _, d := range []sqlconn.Dialect{sqlconn.SQLite, sqlconn.Postgres} {
			m[fmt.Sprintf("%s/%04d_step.sql", d, i+1)] = &fstest.MapFile{Data: []byte(text)}
		}
	}
	return m
}

// slowMigrations returns migrations that fail if they run twice.
func slowMigrations() fs.FS {
	return files("CREATE TABLE m1 (id bigint PRIMARY KEY); CREATE TABLE m2 (id bigint);\n", "INSERT INTO m1 VALUES (1); -- the end\n", "ALTER TABLE m2 ADD COLUMN v text")
}

func TestMigrate(t *testing.T) {
	each(t, func(t *testing.T, c *sqlconn.Conn) {
		ctx := testwait.Long(t)
		first, both := files("CREATE TABLE m (id bigint)"), files("CREATE TABLE m (id bigint)", "ALTER TABLE m ADD COLUMN v text; INSERT INTO m VALUES (1, 'x')")
		for range 2 {
			if err := sqlconn.Migrate(ctx, c, "one", first); err != nil {
				t.Fatal(err)
			}
		}
		for range 2 {
			if err := sqlconn.Migrate(ctx, c, "one", both); err != nil {
				t.Fatal(err)
			}
		}
		if n := number(t, c, "SELECT count(*) FROM m WHERE v = 'x'"); n != 1 {
			t.Errorf("the second step ran %d times, want once", n)
		}
		if err := sqlconn.Migrate(ctx, c, "one", first); !errors.Is(err, sqlconn.ErrNewerSchema) {
			t.Errorf("an older program: %v, want %v", err, sqlconn.ErrNewerSchema)
		}
		// A failed component leaves no changes, and other components stay unchanged.
		bad := files("CREATE TABLE half (id bigint)", "INSERT INTO nowhere VALUES (1)")
		if err := sqlconn.Migrate(ctx, c, "two", bad); !errors.Is(err, sqlconn.ErrRefused) {
			t.Errorf("a step that fails: %v, want %v", err, sqlconn.ErrRefused)
		}
		if err := sqlconn.Migrate(ctx, c, "two", files("CREATE TABLE half (id bigint)")); err != nil {
			t.Errorf("after a failure: %v", err)
		}
	})
}

// TestMigrateAtOnce shows that processes and goroutines that migrate at once run each step once.
func TestMigrateAtOnce(t *testing.T) {
	eachURL(t, func(t *testing.T, dsn string) {
		var children []*process
		for range 2 {
			children = append(children, start(t, "migrate", dsn))
		}
		var group sync.WaitGroup
		for range 4 {
			c := open(t, sqlconn.Config{URL: dsn})
			group.Go(func() {
				if err := c.Migrate(testwait.Long(t), slowMigrations()); err != nil {
					t.Error(err)
				}
			})
		}
		group.Wait()
		for _, p := range children {
			if _, errs := p.numbers(); errs != nil {
				t.Error(errs)
			}
		}
		if n := number(t, open(t, sqlconn.Config{URL: dsn}), "SELECT count(*) FROM m1"); n != 1 {
			t.Errorf("a step ran %d times", n)
		}
	})
}

func TestMigrationNames(t *testing.T) {
	for _, name := range []string{"0002_x.sql", "1_x.sql", "0001x.sql", "0001_x.txt", "x_y.sql"} {
		if _, err := sqlconn.Migrations(fstest.MapFS{"sqlite/" + name: &fstest.MapFile{}}, sqlconn.SQLite); err == nil {
			t.Errorf("%s is taken for the first step", name)
		}
	}
	if _, err := sqlconn.Migrations(fstest.MapFS{}, sqlconn.SQLite); err == nil {
		t.Error("no directory is no error")
	}
}

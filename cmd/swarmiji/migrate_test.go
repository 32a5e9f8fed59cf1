package main

import (
	"bytes"
	"context"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/swarmiji/swarmiji/cmd/swarmiji/internal/cli"
	"github.com/swarmiji/swarmiji/internal/sqlconn"
	"github.com/swarmiji/swarmiji/internal/sqlconn/sqltest"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/internal/testwait"
)

// migrating runs the command migrate. It returns the status and both outputs.
func migrating(t *testing.T, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	var out, err bytes.Buffer
	status = run(testwait.Long(t), append([]string{"migrate", "--timeout", patience.String()}, args...), cli.Surroundings{
		Stdin: strings.NewReader(""), Stdout: &out, Stderr: &err, Getenv: func(string) string { return "" },
	})
	return status, out.String(), err.String()
}

// migrated migrates a database, which must succeed.
func migrated(t *testing.T, at string) {
	t.Helper()
	if status, stdout, stderr := migrating(t, "--up", at); status != cli.ExitOK || stdout != "the tables are up to date\n" {
		t.Fatalf("migrate --up: status %d, %s%s", status, stdout, stderr)
	}
}

// versions returns the versions of the tables in a database, such as "broker 3,events 1".
func versions(t *testing.T, at string) (list string) {
	t.Helper()
	c := sqltest.Conn(t, at)
	err := c.View(testwait.Long(t), func(ctx context.Context, tx *sqlconn.Tx) error {
		rows, err := tx.Query(ctx, "SELECT component, version FROM swarmiji_schema ORDER BY component")
		if err != nil {
			return err
		}
		var all []string
		for rows.Next() {
			var component string
			var version int64
			if err := rows.Scan(&component, &version); err != nil {
				return err
			}
			all = append(all, fmt.Sprint(component, " ", version))
		}
		list = strings.Join(all, ",")
		return rows.Err()
	})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func newDatabase(t *testing.T) string {
	t.Helper()
	at, err := testserver.RequirePostgres(t).Database(testwait.Long(t), testserver.Namespace())
	if err != nil {
		t.Fatal(err)
	}
	return at
}

// TestMigrate makes the tables by --up, which can be repeated, and by the text of --print.
func TestMigrate(t *testing.T) {
	t.Parallel()
	file := func() string { return "sqlite://" + filepath.Join(t.TempDir(), "app.db") }
	for kind, c := range map[string]struct {
		up, printed string
		execute     func(at, script string) error
	}{
		"sqlite": {file(), file(), func(at, script string) error {
			_, err := sqltest.OpenSQL(t, at).ExecContext(testwait.Long(t), script)
			return err
		}},
		"postgres": {newDatabase(t), newDatabase(t), func(at, script string) error {
			conn, err := pgx.Connect(testwait.Long(t), at)
			if err != nil {
				return err
			}
			defer func() { _ = conn.Close(context.Background()) }()
			_, err = conn.Exec(testwait.Long(t), script)
			return err
		}},
	} {
		t.Run(kind, func(t *testing.T) {
			migrated(t, c.up)
			want := versions(t, c.up)
			if !strings.HasPrefix(want, "broker ") || !strings.Contains(want, ",schedule ") {
				t.Errorf("the tables are %q", want)
			}
			status, script, stderr := migrating(t, "--print", c.printed)
			if status != cli.ExitOK || stderr != "" {
				t.Fatalf("migrate --print: status %d, %s", status, stderr)
			}
			if err := c.execute(c.printed, script); err != nil {
				t.Fatalf("the printed text: %v", err)
			}
			for _, at := range []string{c.up, c.printed} {
				migrated(t, at)
				if got := versions(t, at); got != want {
					t.Errorf("the tables are %q, want %q", got, want)
				}
			}
		})
	}
}

// TestMigrateLimitedRole shows that a role without the right to create tables gets an error. When
// the tables exist, it needs no such right.
func TestMigrateLimitedRole(t *testing.T) {
	t.Parallel()
	at, ctx := newDatabase(t), testwait.Long(t)
	conn, err := pgx.Connect(ctx, at)
	if err != nil {
		t.Fatal(err)
	}
	role := testserver.Namespace()
	exec := func(statements string) {
		t.Helper()
		if _, err := conn.Exec(ctx, statements); err != nil {
			t.Fatal(err)
		}
	}
	exec("CREATE ROLE " + role + " LOGIN PASSWORD 'hunter2'; CREATE SCHEMA app; GRANT USAGE ON SCHEMA app TO " + role)
	t.Cleanup(func() {
		_, err := conn.Exec(context.Background(), "DROP OWNED BY "+role+"; DROP ROLE "+role)
		if err != nil {
			t.Error(err)
		}
		_ = conn.Close(context.Background())
	})
	limited := changed(t, at, func(u *url.URL) { u.User = url.UserPassword(role, "hunter2") }) + "&schema=app"
	status, stdout, stderr := migrating(t, "--up", limited)
	if status != cli.ExitUnreachable || !strings.Contains(stderr, "permission denied") || strings.Contains(stdout+stderr, "hunter2") {
		t.Errorf("without tables: status %d, %s%s", status, stdout, stderr)
	}
	migrated(t, at+"&schema=app")
	exec("GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA app TO " + role)
	migrated(t, limited)
}

// TestMigrateRefuses shows the errors of wrong arguments, and of a database that cannot be used.
func TestMigrateRefuses(t *testing.T) {
	t.Parallel()
	at := testserver.RequirePostgres(t).URL()
	for _, c := range []struct {
		name   string
		status int
		says   string
		args   []string
	}{
		{"no URL", cli.ExitUsage, "give a URL", []string{"--up"}},
		{"neither", cli.ExitUsage, "--up and --print", []string{"sqlite:app.db"}},
		{"both", cli.ExitUsage, "--up and --print", []string{"--up", "--print", "sqlite:app.db"}},
		{"two URLs", cli.ExitUsage, "at most 1 arg", []string{"--up", "sqlite:a.db", "sqlite:b.db"}},
		{"another kind", cli.ExitUsage, "redis", []string{"--up", "redis://u:hunter2@host"}},
		{"no scheme", cli.ExitUsage, "scheme", []string{"--print", "app.db"}},
		{"a parameter", cli.ExitUsage, "pgbouncer", []string{"--up", "postgres://u:hunter2@host/d?pgbouncer=perhaps"}},
		{"no directory", cli.ExitUnreachable, "make its directory", []string{"--up", "sqlite:///none/app.db"}},
		{"no server", cli.ExitUnreachable, "check that it runs", []string{"--up", changed(t, at, func(u *url.URL) { u.Host = testserver.UnusedAddr(t) }), "--timeout", "2s"}},
		{"no database", cli.ExitUnreachable, "create the database", []string{"--up", changed(t, at, func(u *url.URL) { u.User, u.Path = parsed(t, at).User, "/nope" })}},
		{"a password", cli.ExitUnreachable, "correct user and password", []string{"--up", changed(t, at, nil)}},
	} {
		t.Run(c.name, func(t *testing.T) {
			status, stdout, stderr := migrating(t, c.args...)
			if status != c.status || !strings.Contains(stderr, c.says) || strings.Contains(stdout+stderr, "hunter2") || strings.Contains(stdout+stderr, password) {
				t.Errorf("status %d, want %d and %q: %s%s", status, c.status, c.says, stdout, stderr)
			}
		})
	}
}

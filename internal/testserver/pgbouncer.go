package testserver

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
)

// PgBouncer is a PgBouncer in the mode "transaction" in front of a PostgreSQL server. It has few
// connections to the server, so that its clients share them.
//
// Safe for concurrent use. Methods that start, stop, pause or resume the server run one at a time.
type PgBouncer struct {
	node
	box  *sandbox
	port int
	to   *Postgres
}

// StartPgBouncer starts a PgBouncer in front of p and waits until it answers. The error wraps
// [ErrMissing] if PgBouncer is not installed.
func StartPgBouncer(ctx context.Context, p *Postgres) (*PgBouncer, error) {
	program, err := exec.LookPath("pgbouncer")
	if err != nil {
		if program, err = exec.LookPath("/usr/sbin/pgbouncer"); err != nil {
			return nil, fmt.Errorf("%w: pgbouncer (Debian: apt-get install pgbouncer): %w", ErrMissing, err)
		}
	}
	ports, err := freePorts(1)
	if err != nil {
		return nil, err
	}
	box, err := newSandbox("swarmiji-pgbouncer-")
	if err != nil {
		return nil, err
	}
	b := &PgBouncer{box: box, port: ports[0], to: p}
	if err := b.begin(ctx, program); err != nil {
		return nil, errors.Join(fmt.Errorf("pgbouncer: %w", err), box.close())
	}
	return b, nil
}

// begin writes the configuration and starts the server.
func (b *PgBouncer) begin(ctx context.Context, program string) error {
	if err := os.Chmod(b.box.dir, 0o711); err != nil {
		return err
	}
	home := filepath.Join(b.box.dir, "home")
	if err := os.Mkdir(home, 0o700); err != nil {
		return err
	}
	conf, users := filepath.Join(home, "pgbouncer.ini"), filepath.Join(home, "users.txt")
	lines := []string{
		"[databases]",
		fmt.Sprintf("* = host=127.0.0.1 port=%d", b.to.port(false)),
		"[pgbouncer]",
		"listen_addr = 127.0.0.1",
		fmt.Sprintf("listen_port = %d", b.port),
		"unix_socket_dir =",
		"auth_type = scram-sha-256",
		"auth_file = " + users,
		"pool_mode = transaction",
		"default_pool_size = 4",
		"max_client_conn = 500",
		"server_round_robin = 1", // clients change their session often
		"server_login_retry = 0.2",
	}
	err := errors.Join(
		os.WriteFile(conf, []byte(strings.Join(lines, "\n")+"\n"), 0o600),
		os.WriteFile(users, []byte(fmt.Sprintf("%q %q\n", pgUser, b.to.verifier)), 0o600))
	if err != nil {
		return err
	}
	prefix, err := asUser("postgres", home, conf, users)
	if err != nil {
		return err
	}
	command := append(prefix, program, conf)
	b.node = node{name: "pgbouncer", probe: b.answers, start: func() (*process, error) {
		return b.box.start("server", filepath.Join(b.box.dir, "console.log"), environment([]string{"PG"}, nil), command[0], command[1:]...)
	}}
	return b.restart(ctx)
}

// answers returns nil if the server passes on a statement.
func (b *PgBouncer) answers(ctx context.Context) error {
	if err := dialTCP(ctx, b.port); err != nil {
		return err
	}
	conn, err := pgx.Connect(ctx, b.URL(b.to.URL())+"&default_query_exec_mode=simple_protocol")
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, "SELECT 1")
	return errors.Join(err, conn.Close(ctx))
}

// URL returns the URL of a database of the server with PgBouncer's address in place of the
// server's. It does not add the parameter pgbouncer.
func (b *PgBouncer) URL(direct string) string {
	u, err := url.Parse(direct)
	if err != nil {
		panic(err) // a URL of Postgres is valid
	}
	u.Host = b.Addr()
	return u.String()
}

// Polled returns the URL of a database through PgBouncer for the adapters, which poll for changes.
func (b *PgBouncer) Polled(direct string) string { return b.URL(direct) + "&pgbouncer=true" }

// Listened is Polled with a connection to the server itself for notifications.
func (b *PgBouncer) Listened(direct string) string {
	return b.Polled(direct) + "&listen_url=" + url.QueryEscape(direct)
}

// Addr returns host:port of the listener, for a [Proxy] or a [Relay].
func (b *PgBouncer) Addr() string { return address(b.port) }

// Close ends the server and removes its files. It is idempotent.
func (b *PgBouncer) Close() error { return b.box.close() }

// RequirePgBouncer returns a PgBouncer in front of the server of [RequirePostgres]. Like this, all
// tests of this binary share it, and it ends with the process. Without PgBouncer the test is
// skipped, see the package comment.
func RequirePgBouncer(tb testing.TB) *PgBouncer {
	tb.Helper()
	p := RequirePostgres(tb)
	return require(tb, &shared.pgbouncer, func(ctx context.Context) (*PgBouncer, error) { return StartPgBouncer(ctx, p) })
}

// OwnPgBouncer starts a PgBouncer in front of p for one test and closes it at the end of the test.
func OwnPgBouncer(tb testing.TB, p *Postgres) *PgBouncer {
	tb.Helper()
	return own(tb, startTime, func(ctx context.Context) (*PgBouncer, error) { return StartPgBouncer(ctx, p) })
}

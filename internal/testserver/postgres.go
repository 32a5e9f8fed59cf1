package testserver

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
)

// PostgresConfig configures a PostgreSQL server. With the zero value a commit waits for the disk,
// as on a production server.
type PostgresConfig struct {
	// Conf holds further lines of postgresql.conf. They come last: a setting that is given again
	// replaces the first.
	Conf string
	TLS  *TLSFiles // TLS lets clients use TLS. nil: clients cannot use TLS.
	// Disk holds all files of the server. nil: the directory for temporary files.
	Disk *Disk
	// RequireClientCert refuses TLS clients without a certificate of TLS's authority. It does not
	// affect connections without TLS.
	RequireClientCert bool
}

// Postgres is a private PostgreSQL server.
//
// Safe for concurrent use. Methods that start, stop, pause or resume the server run one at a time.
type Postgres struct {
	node
	box      *sandbox
	home     string // owned by the user that runs the server
	prefix   []string
	ports    [2]int
	moved    atomic.Bool // the server has the second port
	tls      bool
	password string
	verifier string // of the password, as the server keeps it
}

// pgUser is a superuser and the only user that may connect.
const pgUser = "swarmiji"

// StartPostgres creates a database cluster, starts a server on it and waits until it answers, which
// takes a second or two. The error wraps [ErrMissing] if PostgreSQL is not installed.
func StartPostgres(ctx context.Context, cfg PostgresConfig) (*Postgres, error) {
	var err error
	for range 3 { // another process may have taken the port since this one found it free
		var p *Postgres
		if p, err = tryPostgres(ctx, cfg); err == nil {
			return p, nil
		}
		if errors.Is(err, ErrMissing) || ctx.Err() != nil {
			break
		}
	}
	return nil, fmt.Errorf("postgres: %w", err)
}

// tryPostgres makes one attempt of StartPostgres. After an error nothing is left of it. It fails if
// another process takes a port meanwhile.
func tryPostgres(ctx context.Context, cfg PostgresConfig) (p *Postgres, err error) {
	initdb, err := postgresProgram("initdb")
	if err != nil {
		return nil, err
	}
	program, err := postgresProgram("postgres")
	if err != nil {
		return nil, err
	}
	ports, err := freePorts(2)
	if err != nil {
		return nil, err
	}
	box, err := newSandbox("swarmiji-postgres-")
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, box.close())
		}
	}()
	p = &Postgres{
		box: box, home: filepath.Join(box.dir, "home"), ports: [2]int(ports), tls: cfg.TLS != nil, password: "secret-" + rand.Text(),
	}
	if p.verifier, err = scramVerifier(p.password); err != nil {
		return nil, err
	}
	if cfg.Disk != nil {
		p.home = filepath.Join(cfg.Disk.Dir(), "home")
	}
	p.node = node{name: "postgres", probe: p.answers, start: func() (*process, error) { return p.run(program) }}
	if err := p.initialize(ctx, initdb, cfg); err != nil {
		return nil, err
	}
	if err := p.restart(ctx); err != nil {
		return nil, err
	}
	return p, nil
}

// postgresProgram returns the path of a program of the server. Debian keeps these programs outside
// PATH, in one directory per version.
func postgresProgram(name string) (string, error) {
	if !supported {
		return "", fmt.Errorf("%w: servers are started on Unix only", ErrMissing)
	}
	found, _ := filepath.Glob("/usr/lib/postgresql/[0-9]*/bin/" + name)
	if len(found) > 0 {
		version := func(path string) int {
			n, _ := strconv.Atoi(filepath.Base(filepath.Dir(filepath.Dir(path))))
			return n
		}
		return slices.MaxFunc(found, func(a, b string) int { return version(a) - version(b) }), nil
	}
	path, err := exec.LookPath(name)
	if err != nil {
		return "", fmt.Errorf("%w: %s (Debian: apt-get install postgresql): %w", ErrMissing, name, err)
	}
	return path, nil
}

// initialize creates the database cluster and its configuration. It does not sync them to disk,
// because a machine crash before the server starts loses nothing of value.
func (p *Postgres) initialize(ctx context.Context, initdb string, cfg PostgresConfig) error {
	// the server's user must be able to enter its own directory below this one
	if err := os.Chmod(p.box.dir, 0o711); err != nil {
		return err
	}
	if err := os.Mkdir(p.home, 0o700); err != nil {
		return err
	}
	// A killed server leaves a shared memory segment behind, and a machine has only some thousands.
	// With this file the guard tries SIGQUIT first.
	if err := os.WriteFile(filepath.Join(p.box.dir, "quit"), nil, 0o600); err != nil {
		return err
	}
	files, err := p.copyTLS(cfg.TLS)
	if err != nil {
		return err
	}
	if p.prefix, err = asUser("postgres", append(files, p.home)...); err != nil {
		return err
	}
	t, err := findTemplate(ctx, initdb)
	if err != nil {
		return err
	}
	if t.password != "" {
		p.password, p.verifier = t.password, t.verifier
		err = copyTree(ctx, filepath.Join(t.dir, "data"), p.data())
	} else if err = p.initdb(ctx, initdb); err == nil {
		t.password, t.verifier = p.password, p.verifier
		err = t.save(ctx, p.data())
	}
	if err != nil {
		return err
	}
	return p.configure(cfg)
}

// initdbOptions are the options of initdb that decide the contents of the cluster.
var initdbOptions = []string{
	"--no-sync", "--no-instructions", "--username=" + pgUser, "--auth=scram-sha-256", "--encoding=UTF8", "--locale=C",
}

// initdb runs the program of this name, which creates the database cluster.
func (p *Postgres) initdb(ctx context.Context, program string) error {
	secret := filepath.Join(p.home, "password")
	if err := os.WriteFile(secret, []byte(p.verifier), 0o600); err != nil {
		return err
	}
	if _, err := asUser("postgres", secret); err != nil {
		return err
	}
	command := append(slices.Clone(p.prefix), program, "--pgdata="+p.data(), "--pwfile="+secret)
	command = append(command, initdbOptions...)
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Env, cmd.Dir = p.env(), p.home
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w\n%s", err, out)
	}
	return nil
}

// copyTLS copies the server's TLS files to where only the user that runs the server can read them.
// PostgreSQL requires that.
func (p *Postgres) copyTLS(t *TLSFiles) ([]string, error) {
	if t == nil {
		return nil, nil
	}
	var files []string
	for name, from := range map[string]string{"server.crt": t.Cert, "server.key": t.Key, "ca.crt": t.CA} {
		data, err := os.ReadFile(from)
		if err != nil {
			return nil, err
		}
		to := filepath.Join(p.home, name)
		if err := os.WriteFile(to, data, 0o600); err != nil { //nolint:gosec // its name is one of three
			return nil, err
		}
		files = append(files, to)
	}
	return files, nil
}

// data returns the directory of the database cluster.
func (p *Postgres) data() string { return filepath.Join(p.home, "data") }

// env returns the environment of the server's programs.
func (p *Postgres) env() []string {
	return environment([]string{"PG"}, map[string]string{"LC_ALL": "C"})
}

// configure writes the server's configuration files. It overwrites the files that initdb made, so
// that their owner stays the same.
func (p *Postgres) configure(cfg PostgresConfig) error {
	lines := []string{
		"listen_addresses = '127.0.0.1'",
		"unix_socket_directories = ''",
		"max_connections = 200",
		"shared_buffers = 32MB",
		"max_wal_size = 256MB",
		"jit = off", // the first use of JIT costs more than any statement of a test
		"logging_collector = off",
	}
	hba := "host all all 127.0.0.1/32 scram-sha-256\n"
	if cfg.TLS != nil {
		lines = append(lines, "ssl = on", fmt.Sprintf("ssl_cert_file = '%s/server.crt'", p.home),
			fmt.Sprintf("ssl_key_file = '%s/server.key'", p.home), fmt.Sprintf("ssl_ca_file = '%s/ca.crt'", p.home))
		if cfg.RequireClientCert {
			hba = "hostssl all all 127.0.0.1/32 scram-sha-256 clientcert=verify-ca\nhostnossl all all 127.0.0.1/32 scram-sha-256\n"
		}
	}
	conf := strings.Join(append(lines, cfg.Conf), "\n") + "\n"
	return errors.Join(
		os.WriteFile(filepath.Join(p.data(), "postgresql.conf"), []byte(conf), 0o600),
		os.WriteFile(filepath.Join(p.data(), "pg_hba.conf"), []byte(hba), 0o600))
}

// run starts the server's process. It does not wait until the server answers.
func (p *Postgres) run(program string) (*process, error) {
	command := append(slices.Clone(p.prefix), program, "-D", p.data(), "-p", strconv.Itoa(p.port(false)))
	proc, err := p.box.start("server", filepath.Join(p.box.dir, "console.log"), p.env(), command[0], command[1:]...)
	if err == nil {
		proc.manners = manners{children: true, interrupt: true}
	}
	return proc, err
}

// answers returns nil if the server accepts clients. It returns an error while the server recovers.
func (p *Postgres) answers(ctx context.Context) error {
	if err := dialTCP(ctx, p.port(false)); err != nil {
		return err
	}
	return p.Exec(ctx, "postgres", "SELECT 1")
}

// Exec runs SQL on a database over a separate connection. It is for a test's commands to the
// server.
func (p *Postgres) Exec(ctx context.Context, database, sql string) error {
	conn, err := pgx.Connect(ctx, p.url(database, "disable"))
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, sql)
	return errors.Join(err, conn.Close(ctx))
}

// Database creates an empty database for one test and returns its URL. Use a name from [Namespace].
// It takes some 50 ms.
func (p *Postgres) Database(ctx context.Context, name string) (string, error) {
	if err := p.Exec(ctx, "postgres", "CREATE DATABASE "+pgx.Identifier{name}.Sanitize()); err != nil {
		return "", fmt.Errorf("database %q: %w", name, err)
	}
	return p.url(name, "disable"), nil
}

// URL returns the address of the database postgres, with user and password and without TLS:
// postgres://user:password@127.0.0.1:port/postgres?sslmode=disable.
func (p *Postgres) URL() string { return p.url("postgres", "disable") }

// TLSURL returns the same address through TLS with a verified certificate, or "" if the server was
// started without TLS. The URL does not name the authority: the client must add sslrootcert or
// configure it in another way.
func (p *Postgres) TLSURL() string {
	if !p.tls {
		return ""
	}
	return p.url("postgres", "verify-full")
}

// url returns the address of a database with this sslmode, user and password.
func (p *Postgres) url(database, sslmode string) string {
	u := url.URL{
		Scheme: "postgres", User: url.UserPassword(pgUser, p.password), Host: p.Addr(), Path: "/" + database,
		RawQuery: "sslmode=" + sslmode,
	}
	return u.String()
}

// Addr returns host:port of the listener, for a [Proxy] or a [Relay].
func (p *Postgres) Addr() string { return address(p.port(false)) }

// OtherAddr returns the address that the next call of Move gives to the server.
func (p *Postgres) OtherAddr() string { return address(p.port(true)) }

// Move is Restart with the server's other address. Addr and OtherAddr change places.
func (p *Postgres) Move(ctx context.Context) error {
	p.moved.Store(!p.moved.Load())
	return p.Restart(ctx)
}

// port returns the port of the server, or its other port.
func (p *Postgres) port(other bool) int {
	if p.moved.Load() != other {
		return p.ports[1]
	}
	return p.ports[0]
}

// User returns the user in [Postgres.URL], a superuser.
func (p *Postgres) User() string { return pgUser }

// Password returns the password in [Postgres.URL]. Tests search texts that must not contain it. The
// password is random, so no text of PostgreSQL or of the module contains it by chance.
func (p *Postgres) Password() string { return p.password }

// CloseAllConnections makes the server end the sessions of all clients.
func (p *Postgres) CloseAllConnections(ctx context.Context) error {
	return p.Exec(ctx, "postgres", `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
		WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()`)
}

// Close ends the server without a final checkpoint and removes its data. It is idempotent.
func (p *Postgres) Close() error {
	p.Resume()
	err := p.box.close()
	p.Kill() // if the guard has not done so
	return err
}

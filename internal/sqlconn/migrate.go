package sqlconn

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"

	"github.com/swarmiji/swarmiji/internal/reach"
)

//go:embed migrations
var embedded embed.FS

// versions creates the table with the version of each component's tables.
const versions = `CREATE TABLE IF NOT EXISTS swarmiji_schema (
	component text PRIMARY KEY NOT NULL,
	version   integer NOT NULL,
	migrated  bigint NOT NULL
)`

// migrationLock is the key of PostgreSQL's advisory lock for migrations.
const migrationLock = 0x73776d6a736368 // "swmjsch"

// components returns the directories of migrations. Each has a directory for each dialect, "sqlite"
// and "postgres", with the files 0001_name.sql, 0002_name.sql and so on. Each file is a list of
// statements that runs once. Never change a released file.
func components() ([]string, error) {
	entries, err := embedded.ReadDir("migrations")
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	return names, err
}

// Ready migrates the tables of the Conn's component to the newest version. It does nothing if they
// have this version: then it needs no right to create tables. After a success further calls return
// nil at once.
//
// All missing files run in one transaction. Several processes may migrate at once. Returns
// [ErrNewerSchema] if the tables have a newer version.
//
// On PostgreSQL a migration waits at most LockWait for each lock, since statements of other
// sessions wait behind it. Then it is rolled back, logged, and repeated. After it has its locks, it
// has no time limit. If ctx ends, Ready returns [ErrUnavailable], and the migration continues: the
// next call waits for it. Close of the [DB] rolls it back. It takes c.mu, but does not hold it
// while it waits.
func (c *Conn) Ready(ctx context.Context) error {
	c.mu.Lock()
	ready := c.ready && !c.closed
	c.mu.Unlock()
	if ready {
		return nil
	}
	files, err := fs.Sub(embedded, path.Join("migrations", c.component))
	if err == nil {
		err = c.Migrate(ctx, files)
	}
	if err == nil {
		c.mu.Lock()
		c.ready = true
		c.mu.Unlock()
	}
	return err
}

// Migrate does the work of Ready with the migrations in files. It checks the version of the tables
// at each call.
func (c *Conn) Migrate(ctx context.Context, files fs.FS) error {
	steps, err := migrations(files, c.Dialect())
	if err != nil {
		return err
	}
	have, err := c.version(ctx)
	if err == nil && have == len(steps) {
		return nil
	}
	if _, ok := errors.AsType[*reach.Error](err); ok && ctx.Err() != nil {
		return err // the server was never reached, so no migration runs
	}
	if err := c.begin(); err != nil {
		return err
	}
	defer c.running.Done()
	err = c.db.db.Migrate(ctx, c.life, c.component, func(ctx context.Context, tx *Tx) error {
		if err := tx.lockSchema(ctx, c.db.db.Schema()); err != nil {
			return err
		}
		have, err := tx.version(ctx, c.component)
		if err != nil {
			return err
		}
		if have > len(steps) {
			return fmt.Errorf("%w: %s is at version %d, and this program knows %d", ErrNewerSchema, c.component, have, len(steps))
		}
		for i := have; i < len(steps); i++ {
			if err := tx.script(ctx, steps[i]); err != nil {
				return fmt.Errorf("migration %d of %s: %w", i+1, c.component, err)
			}
		}
		_, err = tx.Exec(ctx, `INSERT INTO swarmiji_schema (component, version, migrated) VALUES ($1, $2, `+c.Dialect().Now()+`)
			ON CONFLICT (component) DO UPDATE SET version = excluded.version, migrated = excluded.migrated`, c.component, len(steps))
		return err
	})
	if errors.Is(err, ErrAccess) && !errors.Is(err, ErrNewerSchema) {
		if _, ok := errors.AsType[*reach.Error](err); !ok {
			err = fmt.Errorf("%w; run swarmiji migrate --up as a role that may create tables", err)
		}
	}
	return err
}

// Migrate implements [sqldb.DB]: it calls Ready for each component and returns their errors joined.
func (d *DB) Migrate(ctx context.Context) error {
	names, err := components()
	for _, name := range names {
		err = errors.Join(err, d.Conn(name).Ready(ctx))
	}
	return err
}

// Migrations implements [sqldb.DB]: it returns the SQL text that creates all tables in an empty
// database. It does no I/O. Returns an error if the embedded files are malformed.
func (d *DB) Migrations() (string, error) {
	var b strings.Builder
	b.WriteString("BEGIN;\n")
	if schema := d.db.Schema(); schema != "" {
		fmt.Fprintf(&b, "CREATE SCHEMA IF NOT EXISTS %s;\nSET LOCAL search_path TO %s;\n", schema, schema)
	}
	b.WriteString(versions + ";\n")
	now := d.db.Dialect().Now()
	if d.db.Dialect() == SQLite {
		// shells before SQLite 3.42 lack 'subsec'
		now = "CAST(strftime('%s', 'now') AS integer) * 1000000"
	}
	names, err := components()
	for _, name := range names {
		files, sub := fs.Sub(embedded, path.Join("migrations", name))
		steps, read := migrations(files, d.db.Dialect())
		err = errors.Join(err, sub, read)
		for i, text := range steps {
			fmt.Fprintf(&b, "\n-- %s, version %d\n%s\n", name, i+1, strings.TrimSpace(text))
		}
		fmt.Fprintf(&b, "INSERT INTO swarmiji_schema (component, version, migrated) VALUES ('%s', %d, %s);\n", name, len(steps), now)
	}
	b.WriteString("COMMIT;\n")
	return b.String(), err
}

// version returns the stored version of the component, or 0 if the component or the table of
// versions does not exist. It takes no lock, so a program with current tables does not wait for
// other processes. After an error, the caller reads the version with a lock.
func (c *Conn) version(ctx context.Context) (have int, err error) {
	err = c.View(ctx, func(ctx context.Context, tx *Tx) error {
		var n int
		known, name := "SELECT count(*) FROM sqlite_master WHERE name = $1", "swarmiji_schema"
		if tx.dialect == Postgres {
			known, name = "SELECT count(*) FROM pg_class WHERE oid = to_regclass($1)", c.db.db.Schema()+"."+name
		}
		if err := tx.Row(ctx, known, name).Scan(&n); err != nil || n == 0 {
			return err
		}
		have, err = tx.version(ctx, c.component)
		return err
	})
	return have, err
}

// version returns the stored version of a component, or 0 for an unknown one, and errors of the
// database. The table of versions must exist.
func (t *Tx) version(ctx context.Context, component string) (int, error) {
	var have int
	err := t.Row(ctx, "SELECT version FROM swarmiji_schema WHERE component = $1", component).Scan(&have)
	if errors.Is(err, ErrNoRows) {
		return 0, nil
	}
	return have, err
}

// lockSchema creates the schema and the table of versions, and locks out migrations by other
// processes until the transaction ends. A transaction on SQLite holds such a lock already, and has
// no schema.
func (t *Tx) lockSchema(ctx context.Context, schema string) error {
	if t.dialect == Postgres {
		if _, err := t.Exec(ctx, "SELECT pg_advisory_xact_lock($1)", int64(migrationLock)); err != nil {
			return err
		}
		// CREATE SCHEMA IF NOT EXISTS needs a right of its own even if the schema exists.
		var exists bool
		if err := t.Row(ctx, "SELECT to_regnamespace($1) IS NOT NULL", schema).Scan(&exists); err != nil {
			return err
		}
		text := "SET LOCAL search_path TO " + schema
		if !exists {
			text = "CREATE SCHEMA " + schema + "; " + text
		}
		if err := t.script(ctx, text); err != nil {
			return err
		}
	}
	_, err := t.Exec(ctx, versions)
	return err
}

// script runs statements separated by semicolons. It waits for the database and returns its error,
// with its class.
func (t *Tx) script(ctx context.Context, text string) error {
	if err := t.begin(ctx); err != nil {
		return err
	}
	return t.fail(t.link.Script(ctx, text))
}

// migrations returns the texts of a dialect's files, in order. Returns an error if a file cannot be
// read, is not named 0001_name.sql and so on, or if the numbers have a gap.
func migrations(files fs.FS, d Dialect) ([]string, error) {
	entries, err := fs.ReadDir(files, string(d))
	if err != nil {
		return nil, fmt.Errorf("migrations: %w", err)
	}
	var steps []string
	for _, e := range entries { // sorted by name
		number, _, ok := strings.Cut(e.Name(), "_")
		n, err := strconv.Atoi(number)
		if !ok || err != nil || len(number) != 4 || n != len(steps)+1 || path.Ext(e.Name()) != ".sql" {
			return nil, fmt.Errorf("migrations: %s/%s is not number %04d", d, e.Name(), len(steps)+1)
		}
		text, err := fs.ReadFile(files, path.Join(string(d), e.Name()))
		if err != nil {
			return nil, fmt.Errorf("migrations: %w", err)
		}
		steps = append(steps, string(text))
	}
	return steps, nil
}

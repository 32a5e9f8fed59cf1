package sqlconn

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"

	"github.com/swarmiji/swarmiji/internal/reach"
)

// versions creates the table with the version of each component's tables.
const versions = `CREATE TABLE IF NOT EXISTS swarmiji_schema (
	component text PRIMARY KEY NOT NULL,
	version   integer NOT NULL,
	migrated  bigint NOT NULL
)`

// migrationLock is the key of PostgreSQL's advisory lock for migrations.
const migrationLock = 0x73776d6a736368 // "swmjsch"

// Migrate migrates the tables of a component to the newest version in files. It does nothing if
// they have this version.
//
// files has a directory for each dialect, "sqlite" and "postgres", with the files 0001_name.sql,
// 0002_name.sql and so on. Each file is a list of statements that runs once. All missing files run
// in one transaction. Never change a released file. Several processes may migrate at once. Returns
// [ErrNewerSchema] if the tables have a newer version.
//
// On PostgreSQL a migration waits at most LockWait for each lock, since statements of other
// sessions wait behind it. Then it is rolled back, logged, and repeated. After it has its locks, it
// has no time limit. If ctx ends, Migrate returns [ErrUnavailable], and the migration continues:
// the next call waits for it. Close rolls it back.
func (c *Conn) Migrate(ctx context.Context, component string, files fs.FS) error {
	steps, err := migrations(files, c.Dialect())
	if err != nil {
		return err
	}
	have, err := c.version(ctx, component)
	if err == nil && have == len(steps) {
		return nil
	}
	if _, ok := errors.AsType[*reach.Error](err); ok && ctx.Err() != nil {
		return err // the server was never reached, so no migration runs
	}
	if err := c.open(); err != nil {
		return err
	}
	return c.db.Migrate(ctx, component, func(ctx context.Context, tx *Tx) error {
		if err := tx.lockSchema(ctx); err != nil {
			return err
		}
		have, err := tx.version(ctx, component)
		if err != nil {
			return err
		}
		if have > len(steps) {
			return fmt.Errorf("%w: %s is at version %d, and this program knows %d", ErrNewerSchema, component, have, len(steps))
		}
		for i := have; i < len(steps); i++ {
			if err := tx.script(ctx, steps[i]); err != nil {
				return fmt.Errorf("migration %d of %s: %w", i+1, component, err)
			}
		}
		_, err = tx.Exec(ctx, `INSERT INTO swarmiji_schema (component, version, migrated) VALUES ($1, $2, `+c.Dialect().Now()+`)
			ON CONFLICT (component) DO UPDATE SET version = excluded.version, migrated = excluded.migrated`, component, len(steps))
		return err
	})
}

// version returns the stored version of a component, or 0 if it has no tables yet. It takes no lock
// of the database, so a program with current tables does not wait for other processes. It waits for
// the database and returns its errors; the caller then reads the version with a lock.
func (c *Conn) version(ctx context.Context, component string) (have int, err error) {
	err = c.View(ctx, func(ctx context.Context, tx *Tx) error {
		var n int
		known := "SELECT count(*) FROM sqlite_master WHERE name = 'swarmiji_schema'"
		if tx.dialect == Postgres {
			known = "SELECT count(*) FROM pg_class WHERE oid = to_regclass('swarmiji_schema')"
		}
		if err := tx.Row(ctx, known).Scan(&n); err != nil || n == 0 {
			return err
		}
		have, err = tx.version(ctx, component)
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

// lockSchema creates the table of versions and locks out migrations by other processes until the
// transaction ends. It waits for such a migration. A transaction on SQLite holds such a lock
// already. Returns errors of the database.
func (t *Tx) lockSchema(ctx context.Context) error {
	if t.dialect == Postgres {
		if _, err := t.Exec(ctx, "SELECT pg_advisory_xact_lock($1)", int64(migrationLock)); err != nil {
			return err
		}
	}
	_, err := t.Exec(ctx, versions)
	return err
}

// script runs statements separated by semicolons.
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

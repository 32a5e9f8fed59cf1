package sqlconn

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"
)

// versions is the table of what each component has made of its tables.
const versions = `CREATE TABLE IF NOT EXISTS swarmiji_schema (
	component text PRIMARY KEY NOT NULL,
	version   integer NOT NULL,
	migrated  bigint NOT NULL
)`

// migrationLock is the key of PostgreSQL's advisory lock for migrations.
const migrationLock = 0x73776d6a736368 // "swmjsch"

// Migrate brings the tables of a component to the newest version that files has, and does nothing when they are there.
// files holds a directory for each dialect, "sqlite" and "postgres", with the files 0001_name.sql, 0002_name.sql and so on:
// each is a list of statements that is run once, all missing ones in one transaction. A file that was released is never
// changed. Several processes may migrate at once. Tables of a newer version are [ErrNewerSchema].
//
// On PostgreSQL a migration waits at most 2 s for each lock, since statements of other sessions
// wait behind it. Then it is rolled back, logged, and tried again. Once it has its locks, it has
// no limit of time. If ctx ends, Migrate returns [ErrUnavailable], and the migration goes on: the
// next call waits for it. Close rolls it back.
func (c *Conn) Migrate(ctx context.Context, component string, files fs.FS) error {
	steps, err := migrations(files, c.Dialect())
	if err != nil {
		return err
	}
	have, err := c.version(ctx, component)
	if err == nil && have == len(steps) {
		return nil
	}
	if err := c.open(); err != nil {
		return err
	}
	return c.db.migrate(ctx, component, func(ctx context.Context, tx *Tx) error {
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

// version looks without a lock, so that a program whose tables are there waits for nobody. An error means to look with one.
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

func (t *Tx) version(ctx context.Context, component string) (int, error) {
	var have int
	err := t.Row(ctx, "SELECT version FROM swarmiji_schema WHERE component = $1", component).Scan(&have)
	if errors.Is(err, ErrNoRows) {
		return 0, nil
	}
	return have, err
}

// lockSchema makes the table of versions, and keeps other processes from migrating. A transaction of SQLite holds the lock
// already.
func (t *Tx) lockSchema(ctx context.Context) error {
	if t.dialect == Postgres {
		if _, err := t.Exec(ctx, "SELECT pg_advisory_xact_lock($1)", int64(migrationLock)); err != nil {
			return err
		}
	}
	_, err := t.Exec(ctx, versions)
	return err
}

// script runs statements that are separated by semicolons.
func (t *Tx) script(ctx context.Context, text string) error {
	if err := t.begin(ctx); err != nil {
		return err
	}
	switch l := t.link.(type) {
	case *liteConn:
		return t.fail(l.script(ctx, text))
	case *pgTx:
		l.closeRows()
		_, err := l.conn.PgConn().Exec(ctx, text).ReadAll()
		return t.fail(err)
	default:
		return t.fail(&failure{ErrRefused, errors.New("a script outside of a transaction")})
	}
}

// migrations returns the texts of a dialect's files, in order.
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

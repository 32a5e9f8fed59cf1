package sqlconn

import (
	"context"
	"errors"
	"io/fs"
)

// BatchTime is the time of functions after which a batch of a SQLite file ends.
const BatchTime = batchTime

// ClassOfLite returns the class of an error code of SQLite.
func ClassOfLite(code int) error { return classOfLite(code) }

// Unnumbered returns a query as SQLite prepares it.
func Unnumbered(query string) string { return unnumbered(query) }

// Queued returns the number of calls that wait for the next commit of a SQLite file.
func Queued(c *Conn) int {
	g := c.db.db.(*lite).group
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.queue)
}

// Migrations returns the texts of a dialect's files.
func Migrations(files fs.FS, d Dialect) ([]string, error) { return migrations(files, d) }

// Tell sends topics to other processes.
func Tell(c *Conn, topics []string) { c.db.db.Tell(topics) }

// CloseAll closes a Conn and its DB.
func CloseAll(ctx context.Context, c *Conn) error {
	return errors.Join(c.Close(ctx), c.db.Close(ctx))
}

// Migrate migrates the tables of a component in the database of c.
func Migrate(ctx context.Context, c *Conn, component string, files fs.FS) error {
	return c.db.Conn(component).Migrate(ctx, files)
}

// DBOf returns the database of c.
func DBOf(c *Conn) *DB { return c.db }

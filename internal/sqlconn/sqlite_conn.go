package sqlconn

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"time"

	"github.com/swarmiji/swarmiji/internal/wake"
)

// liteConn is one connection with its prepared statements.
type liteConn struct {
	conn     *sql.Conn
	given    bool // from a pool of the user
	writer   bool // its statements ignore ctx: an interrupted one would roll back the batch
	prepared map[string]*sql.Stmt
	rows     *sql.Rows // of the last query, if they are open
	broken   bool
	relaxed  bool // commits do not wait for the disk
}

// prepare sets the mode of the connection: read-only for a reader, WAL for the writer of a file. If
// another process opens the file at the same moment, SQLite returns busy without a wait. So prepare
// repeats the statement until ctx ends, and then returns ErrUnavailable. Returns ErrAccess if the
// file system does not support WAL, and other errors of the driver.
func (c *liteConn) prepare(ctx context.Context, reader, file bool) error {
	for _, p := range pragmas() {
		if _, err := c.conn.ExecContext(ctx, "PRAGMA "+p); err != nil {
			return err
		}
	}
	if reader {
		_, err := c.conn.ExecContext(ctx, "PRAGMA query_only = 1")
		return err
	}
	if !file {
		return nil
	}
	for {
		var mode string
		err := c.conn.QueryRowContext(ctx, "PRAGMA journal_mode = WAL").Scan(&mode)
		switch {
		case err == nil && mode != "wal":
			return &failure{ErrAccess, fmt.Errorf("the file's journal is %q: its file system cannot share memory between processes", mode)}
		case !isBusy(err):
			return err
		}
		if !wake.Sleep(ctx, 10*time.Millisecond) {
			return Ended(ctx, Classify(err))
		}
	}
}

// calm returns the context for a statement: ctx for a reader, a context without end for the writer.
func (c *liteConn) calm(ctx context.Context) context.Context {
	if c.writer {
		return context.Background()
	}
	return ctx
}

// stmt returns the prepared statement of a query, and prepares and keeps that of a new query. It
// returns nil and nil if there are maxStatements already; the query then runs unprepared. Returns
// the driver's error if the query cannot be prepared.
func (c *liteConn) stmt(ctx context.Context, query string) (*sql.Stmt, error) {
	if s, ok := c.prepared[query]; ok {
		return s, nil
	}
	if len(c.prepared) >= maxStatements {
		return nil, nil
	}
	s, err := c.conn.PrepareContext(ctx, unnumbered(query))
	if err != nil {
		return nil, err
	}
	c.prepared[query] = s
	return s, nil
}

// quotedOrParameter matches a quoted text or name, and a parameter such as $1.
var quotedOrParameter = regexp.MustCompile(`'[^']*'|"[^"]*"|\$[0-9]+`)

// unnumbered returns the query with ? in place of $1, $2 and so on, if each occurs once and in
// order. Other queries it returns unchanged. Quoted texts and names stay as they are. A query must
// be one statement without comments. The driver binds ? by position. For $1 it would look for an
// argument of that name at each execution.
func unnumbered(query string) string {
	n, ordered := 0, true
	text := quotedOrParameter.ReplaceAllStringFunc(query, func(s string) string {
		if s[0] != '$' {
			return s
		}
		n++
		ordered = ordered && s == "$"+strconv.Itoa(n)
		return "?"
	})
	if !ordered {
		return query
	}
	return text
}

// relax sets whether the following commits may return before their data are on the disk. Call it
// outside a transaction. It closes open rows. It does nothing if that is set already. Returns the
// driver's error; the setting is then as before.
func (c *liteConn) relax(relaxed bool) error {
	if c.relaxed == relaxed {
		return nil
	}
	c.closeRows()
	level := "FULL"
	if relaxed {
		level = "NORMAL"
	}
	// not a prepared statement: SQLite executes this one while it prepares it
	if _, err := c.conn.ExecContext(context.Background(), "PRAGMA synchronous = "+level); err != nil {
		return c.check(err)
	}
	c.relaxed = relaxed
	return nil
}

// Exec implements Link. It first closes the open rows. It returns the number of changed rows, and
// the driver's error, not classified. The end of ctx interrupts only a reader. An error of the
// connection marks c as broken.
func (c *liteConn) Exec(ctx context.Context, query string, args []any) (int64, error) {
	c.closeRows()
	ctx = c.calm(ctx)
	s, err := c.stmt(ctx, query) //nolint:sqlclosecheck // it is kept
	if err != nil {
		return 0, c.check(err)
	}
	var res sql.Result
	if s != nil {
		res, err = s.ExecContext(ctx, args...)
	} else {
		res, err = c.conn.ExecContext(ctx, query, args...)
	}
	if err != nil {
		return 0, c.check(err)
	}
	return res.RowsAffected()
}

// Query implements Link. It first closes the open rows. The next statement closes the returned
// rows. It returns the driver's error, not classified. The end of ctx interrupts only a reader. An
// error of the connection marks c as broken.
func (c *liteConn) Query(ctx context.Context, query string, args []any) (Rows, error) {
	c.closeRows()
	ctx = c.calm(ctx)
	s, err := c.stmt(ctx, query) //nolint:sqlclosecheck // it is kept
	if err != nil {
		return nil, c.check(err)
	}
	var rows *sql.Rows
	if s != nil {
		rows, err = s.QueryContext(ctx, args...) //nolint:rowserrcheck // the caller does
	} else {
		rows, err = c.conn.QueryContext(ctx, query, args...) //nolint:rowserrcheck // the caller does
	}
	if err != nil {
		return nil, c.check(err)
	}
	c.rows = rows
	return c.rows, nil
}

// Script implements Link. It runs statements separated by semicolons.
func (c *liteConn) Script(ctx context.Context, text string) error {
	c.closeRows()
	_, err := c.conn.ExecContext(c.calm(ctx), text)
	return c.check(err)
}

// closeRows closes the rows that a function has left open. Open rows would block the commit.
func (c *liteConn) closeRows() {
	if c.rows != nil {
		_ = c.rows.Close() // the function ignored it too
		c.rows = nil
	}
}

// check returns err unchanged. It marks c as broken if err is an error of the connection, not only
// of a busy file.
func (c *liteConn) check(err error) error {
	if err != nil && (errors.Is(err, sql.ErrConnDone) || errors.Is(Classify(err), ErrUnavailable) && !isBusy(err)) {
		c.broken = true
	}
	return err
}

// close closes the open rows, the prepared statements and the connection. It ignores errors: every
// commit has written to the disk already.
func (c *liteConn) close() {
	c.closeRows()
	for _, s := range c.prepared {
		_ = s.Close() // the connection is closed as well
	}
	if c.given {
		// The user's pool must not get a connection with the settings of this package.
		_ = c.conn.Raw(func(any) error { return driver.ErrBadConn })
		return
	}
	_ = c.conn.Close() // every commit has flushed the file already
}

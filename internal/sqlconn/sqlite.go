package sqlconn

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"sync"
	"time"

	_ "modernc.org/sqlite" // the driver "sqlite"

	"github.com/swarmiji/swarmiji/internal/wake"
)

// busyWait is how long SQLite itself waits for a lock before the group looks whether anybody still wants it.
const busyWait = 250 * time.Millisecond

// maxStatements is how many prepared statements a connection keeps. Adapters have some dozens.
const maxStatements = 256

// lite is a SQLite database: one connection that writes, and some that read.
type lite struct {
	plan  plan
	group *group
	free  chan *liteConn // readers; nil stands for one that is not open yet

	mu     sync.Mutex
	pool   *sql.DB // of the writer and the readers; nil until first used
	closed bool

	ending sync.Once
	ended  chan struct{} // closed when all connections are
	failed error         // of closing them; set before ended is closed
}

func newLite(p plan) *lite {
	l := &lite{plan: p, free: make(chan *liteConn, p.Readers), ended: make(chan struct{})}
	l.group = newGroup(l)
	for range cap(l.free) {
		l.free <- nil
	}
	return l
}

// source is the name of the database for the driver, with what every connection is told first.
func (l *lite) source(pragmas ...string) string {
	u := url.URL{Scheme: "file", OmitHost: true, Path: l.plan.file}
	q := url.Values{"_pragma": append([]string{
		fmt.Sprintf("busy_timeout(%d)", busyWait.Milliseconds()), "foreign_keys(1)", "synchronous(FULL)", "temp_store(MEMORY)",
		"cache_size(-8000)", "trusted_schema(0)",
	}, pragmas...)}
	if l.plan.file == "" {
		return ":memory:?" + q.Encode()
	}
	if l.plan.file[0] != '/' {
		u.Path = "./" + l.plan.file // else its first part would be taken for a host
		return "file:" + u.EscapedPath() + "?" + q.Encode()
	}
	return u.String() + "?" + q.Encode()
}

// connect opens a connection. The first one makes the file.
func (l *lite) connect(ctx context.Context, reader bool) (*liteConn, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, &failure{ErrClosed, errClosed}
	}
	if l.pool == nil {
		if err := l.make(); err != nil {
			return nil, err
		}
		db, err := sql.Open("sqlite", l.source())
		if err != nil {
			return nil, &failure{ErrAccess, errors.New("the driver cannot use the file's name")}
		}
		db.SetMaxIdleConns(0) // this package keeps its connections itself
		l.pool = db
	}
	conn, err := l.pool.Conn(ctx)
	if err != nil {
		return nil, classify(err)
	}
	c := &liteConn{conn: conn, writer: !reader, prepared: make(map[string]*sql.Stmt)}
	if err := c.prepare(ctx, reader, l.plan.file != ""); err != nil {
		c.close()
		return nil, classify(err)
	}
	return c, nil
}

// make creates the file, for its owner alone: SQLite would let everybody read it. Its further files get the same mode.
func (l *lite) make() error {
	if l.plan.file == "" {
		return nil
	}
	f, err := os.OpenFile(l.plan.file, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		if pe, ok := errors.AsType[*fs.PathError](err); ok {
			err = pe.Err // the path is the user's affair, and an error is not the place for it
		}
		return &failure{ErrAccess, fmt.Errorf("open the SQLite file: %w", err)}
	}
	return f.Close()
}

// update implements database.
func (l *lite) update(ctx context.Context, _ bool, fn Func) ([]string, error) {
	return l.group.update(ctx, fn)
}

// migrate implements database.
func (l *lite) migrate(ctx context.Context, _ string, fn Func) error {
	_, err := l.group.update(ctx, fn)
	return err
}

// view implements database. A database in memory has one connection only.
func (l *lite) view(ctx context.Context, fn Func) error {
	if l.plan.file == "" {
		_, err := l.group.update(ctx, fn)
		return err
	}
	for attempt := 0; ; attempt++ {
		err := l.viewOnce(ctx, fn)
		if !isBusy(err) || ctx.Err() != nil { // a reader is held up only while the file is recovered
			return err
		}
		if !wake.Sleep(ctx, l.plan.Backoff.Interval(attempt)) {
			return ended(ctx, err)
		}
	}
}

func (l *lite) viewOnce(ctx context.Context, fn Func) error {
	var c *liteConn
	select {
	case c = <-l.free:
	case <-ctx.Done():
		return ended(ctx, nil)
	}
	if c == nil {
		var err error
		if c, err = l.connect(ctx, true); err != nil {
			l.free <- nil
			return err
		}
	}
	defer func() {
		if c.broken {
			c.close()
			c = nil
		}
		l.free <- c
	}()
	tx := &Tx{dialect: SQLite, link: c}
	return tx.verdict(fn(ctx, tx))
}

// tell implements database. There is nobody to tell: other processes look.
func (l *lite) tell([]string) {}

// close implements database.
func (l *lite) close(ctx context.Context) error {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	if err := l.group.close(ctx); err != nil {
		return err
	}
	l.ending.Do(func() { go l.end() })
	select {
	case <-l.ended:
		return l.failed
	case <-ctx.Done():
		return ctx.Err()
	}
}

// end takes the readers as they become free and closes all connections. It runs once: two that each
// had some of the readers would wait for each other.
func (l *lite) end() {
	for range cap(l.free) {
		if c := <-l.free; c != nil {
			c.close()
		}
	}
	for range cap(l.free) {
		l.free <- nil // for those who wait for one, and learn then that it is closed
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.pool != nil {
		l.failed = l.pool.Close()
	}
	close(l.ended)
}

// liteConn is one connection with its prepared statements.
type liteConn struct {
	conn     *sql.Conn
	writer   bool // its statements end whatever becomes of a caller's ctx: to interrupt one would roll back a whole group
	prepared map[string]*sql.Stmt
	rows     *sql.Rows // of the last query, if they are open
	broken   bool
}

// prepare sets what the connection's kind needs. Another process that opens the file in the same moment makes it busy, in
// a way that SQLite does not wait for.
func (c *liteConn) prepare(ctx context.Context, reader, file bool) error {
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
			return ended(ctx, classify(err))
		}
	}
}

// calm is the ctx of a statement.
func (c *liteConn) calm(ctx context.Context) context.Context {
	if c.writer {
		return context.Background()
	}
	return ctx
}

// stmt returns a prepared statement; nil: it is run without.
func (c *liteConn) stmt(ctx context.Context, query string) (*sql.Stmt, error) {
	if s, ok := c.prepared[query]; ok {
		return s, nil
	}
	if len(c.prepared) >= maxStatements {
		return nil, nil
	}
	s, err := c.conn.PrepareContext(ctx, query)
	if err != nil {
		return nil, err
	}
	c.prepared[query] = s
	return s, nil
}

// exec implements link.
func (c *liteConn) exec(ctx context.Context, query string, args []any) (int64, error) {
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

// query implements link.
func (c *liteConn) query(ctx context.Context, query string, args []any) (Rows, error) {
	c.closeRows()
	ctx = c.calm(ctx)
	s, err := c.stmt(ctx, query) //nolint:sqlclosecheck // it is kept
	if err != nil {
		return nil, c.check(err)
	}
	var rows *sql.Rows
	if s != nil {
		rows, err = s.QueryContext(ctx, args...) //nolint:rowserrcheck // the caller reads them
	} else {
		rows, err = c.conn.QueryContext(ctx, query, args...) //nolint:rowserrcheck // the caller reads them
	}
	if err != nil {
		return nil, c.check(err)
	}
	c.rows = rows
	return c.rows, nil
}

// script runs statements that are separated by semicolons.
func (c *liteConn) script(ctx context.Context, text string) error {
	c.closeRows()
	_, err := c.conn.ExecContext(c.calm(ctx), text)
	return c.check(err)
}

// closeRows closes what a function has left open, which would hold up the commit.
func (c *liteConn) closeRows() {
	if c.rows != nil {
		_ = c.rows.Close() // whoever left them open does not want to know
		c.rows = nil
	}
}

func (c *liteConn) check(err error) error {
	if err != nil && (errors.Is(err, sql.ErrConnDone) || errors.Is(classify(err), ErrUnavailable) && !isBusy(err)) {
		c.broken = true
	}
	return err
}

func (c *liteConn) close() {
	c.closeRows()
	for _, s := range c.prepared {
		_ = s.Close() // the connection ends as well
	}
	_ = c.conn.Close() // a file has nothing left to flush that a commit has not
}

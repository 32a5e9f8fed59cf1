package sqlconn

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"path/filepath"
	"sync"
	"time"

	"github.com/swarmiji/swarmiji/internal/wake"
)

// busyWait limits how long SQLite itself waits for a lock. After that the group checks whether the
// callers still wait.
const busyWait = 250 * time.Millisecond

// maxStatements is the largest number of prepared statements of a connection. Adapters have some
// dozens.
const maxStatements = 256

// lite is a SQLite database with one writing connection and some reading ones. Safe for concurrent
// use.
type lite struct {
	Config
	file  string // "" means in memory
	group *group
	free  chan *liteConn // free readers; nil stands for one that is not open yet

	given bool // pool belongs to the user

	watchLog func(log string) LogWatch

	mu     sync.Mutex
	pool   *sql.DB     // of the writer and the readers; nil until first use
	made   fs.FileInfo // of the file at first use
	log    fs.FileInfo // of its log; nil: not known
	closed bool

	ending sync.Once
	ended  chan struct{} // closed after all connections are closed
	failed error         // error of closing; set before ended is closed
}

// OpenSQLite implements Open of package sqlite, which links the driver "sqlite" of database/sql. It
// checks cfg and does not open the file. pool is nil, or a pool of the user for this file, which
// then replaces the URL. watchLog begins to watch the file's log.
func OpenSQLite(cfg Config, pool *sql.DB, file string, watchLog func(log string) LogWatch) (Database, error) {
	l := &lite{
		Config: cfg, pool: pool, given: pool != nil, file: file, watchLog: watchLog,
		free: make(chan *liteConn, cfg.Readers), ended: make(chan struct{}),
	}
	if !l.given {
		if err := l.checkLite(); err != nil {
			return nil, err
		}
	}
	if l.file != "" {
		// SQLite would look for the file of a later connection in the working directory of that time
		if abs, err := filepath.Abs(l.file); err == nil && filepath.VolumeName(abs) == "" {
			l.file = abs
		}
		l.file = target(l.file)
	}
	l.group = newGroup(l)
	for range cap(l.free) {
		l.free <- nil
	}
	return l, nil
}

// Dialect implements Database.
func (l *lite) Dialect() Dialect { return SQLite }

// Schema implements Database. It returns "", since SQLite has no schemas.
func (l *lite) Schema() string { return "" }

// Text implements Database. It returns query unchanged, since SQLite has no schemas.
func (l *lite) Text(query string) string { return query }

// Shared implements Database. It returns false for a database in memory.
func (l *lite) Shared() bool { return l.file != "" }

// Identity implements Database. It returns the path of the file, or "" for a database in memory.
// Returns ErrAccess if the file at the path is not the open one. It takes l.mu.
func (l *lite) Identity(context.Context, string) (string, error) { return l.file, l.checkPlace() }

// pragmas returns the settings of every connection.
func pragmas() []string {
	return []string{
		fmt.Sprintf("busy_timeout=%d", busyWait.Milliseconds()), "foreign_keys=1", "synchronous=FULL", "temp_store=MEMORY",
		"cache_size=-8000", "trusted_schema=0",
	}
}

// source returns the driver's name of the database.
func (l *lite) source() string {
	if l.file == "" {
		return ":memory:"
	}
	u := url.URL{Scheme: "file", OmitHost: true, Path: l.file}
	if l.file[0] != '/' {
		u.Path = "./" + l.file // otherwise its first part would be read as a host
		return "file:" + u.EscapedPath()
	}
	return u.String()
}

// connect opens a connection, for reading only if reader is set, and waits for the file. The first
// call creates the file. Returns ErrClosed after Close, ErrAccess if the file cannot be used, and
// other errors of the driver with their class. It takes l.mu, but does not hold it while it waits:
// a user's pool may have no free connection for long.
func (l *lite) connect(ctx context.Context, reader bool) (*liteConn, error) {
	pool, err := l.opened()
	if err != nil {
		return nil, err
	}
	conn, err := pool.Conn(ctx)
	if err != nil {
		return nil, Classify(err)
	}
	c := &liteConn{conn: conn, writer: !reader, given: l.given, prepared: make(map[string]*sql.Stmt)}
	if err := c.prepare(ctx, reader, l.file != ""); err != nil {
		c.close()
		return nil, Classify(err)
	}
	if l.given {
		l.remember()
	}
	return c, nil
}

// opened returns the pool. The first call creates the file and the pool, unless the pool is the
// user's. Returns ErrClosed after Close, and ErrAccess if the file cannot be used. It takes l.mu.
func (l *lite) opened() (*sql.DB, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, Closed()
	}
	if l.pool == nil {
		if err := l.create(); err != nil {
			return nil, err
		}
		db, err := sql.Open("sqlite", l.source())
		if err != nil {
			return nil, &failure{ErrAccess, errors.New("the driver cannot use the file's name")}
		}
		db.SetMaxIdleConns(0) // this package keeps the connections itself
		l.pool = db
	}
	return l.pool, nil
}

// Update implements Database: it runs fn as a turn of the group and returns its topics after the
// commit. Concurrent calls share a commit. It returns the errors of the group's update.
func (l *lite) Update(ctx, _ context.Context, kind Kind, fn Func) ([]string, error) {
	return l.group.update(ctx, kind == Relaxed, fn)
}

// Migrate implements Database. It does the same as Update.
func (l *lite) Migrate(ctx, _ context.Context, _ string, fn Func) error {
	_, err := l.group.update(ctx, false, fn)
	return err
}

// View implements Database: it runs fn on a connection that only reads, and repeats that while the
// file is locked, until ctx ends. A database in memory has one connection only, so View then uses
// the writer.
func (l *lite) View(ctx, _ context.Context, fn Func) error {
	if l.file == "" {
		_, err := l.group.update(ctx, false, fn)
		return err
	}
	for attempt := 0; ; attempt++ {
		err := l.viewOnce(ctx, fn)
		if !isBusy(err) || ctx.Err() != nil { // a reader waits only while the file is recovered
			return err
		}
		if !wake.Sleep(ctx, l.Backoff.Interval(attempt)) {
			return Ended(ctx, err)
		}
	}
}

// viewOnce runs fn once on a free reader, for which it waits, and opens the reader if necessary. It
// drops a broken one. Returns the error of fn or of a statement, the errors of connect, and
// ErrUnavailable if ctx ends during the wait.
func (l *lite) viewOnce(ctx context.Context, fn Func) error {
	if err := l.checkPlace(); err != nil {
		return err
	}
	var c *liteConn
	select {
	case c = <-l.free:
	case <-ctx.Done():
		return Ended(ctx, nil)
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
	return tx.Verdict(fn(ctx, tx))
}

// Tell implements Database. It does nothing: other processes poll the file.
func (l *lite) Tell([]string) {}

// Close implements Database. It waits for running calls and closes all connections, and returns the
// error of that. If ctx ends earlier it returns ctx's error, and a goroutine continues the work. It
// is idempotent. It takes l.mu, but does not hold it while it waits.
func (l *lite) Close(ctx context.Context) error {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	_ = l.group.close(ctx) // an error means that ctx has ended, which is returned below
	l.ending.Do(func() { go l.end() })
	select {
	case <-l.ended:
		return l.failed
	case <-ctx.Done():
		return ctx.Err()
	}
}

// end waits for the writer, takes the readers as they become free, and closes all connections. Then
// it stores the error of the pool in l.failed and closes l.ended. It takes l.mu. It must run once:
// two runs would wait for each other's readers.
func (l *lite) end() {
	<-l.group.idle
	for range cap(l.free) {
		if c := <-l.free; c != nil {
			c.close()
		}
	}
	for range cap(l.free) {
		l.free <- nil // for waiting calls, which then find that the database is closed
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.pool != nil && !l.given {
		l.failed = l.pool.Close()
	}
	close(l.ended)
}

// Package postgres connects package sqlconn to PostgreSQL.
package postgres

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/swarmiji/swarmiji/internal/reach"
	"github.com/swarmiji/swarmiji/internal/sqlconn"
	"github.com/swarmiji/swarmiji/internal/wake"
)

// Driver opens PostgreSQL databases.
type Driver struct {
	// Pool is a pool of the user, which replaces the URL. It is not closed. nil: Open makes a pool.
	Pool *pgxpool.Pool
}

// pingAfter is the time without use after which pgxpool asks the server whether a connection lives.
const pingAfter = time.Second

// Open implements [sqlconn.Driver]. It does not connect.
func (d Driver) Open(cfg sqlconn.Config) (sqlconn.Database, error) {
	c, err := check(cfg, d.Pool)
	if err != nil {
		return nil, err
	}
	return newPostgres(c, d.Pool), nil
}

// postgres is a PostgreSQL database with a pool of connections.
type postgres struct {
	config   config
	texts    sync.Map // statement -> statement with the schema
	notifier *notifier
	life     context.Context // ends with Close
	end      context.CancelFunc

	given    bool         // pool belongs to the user
	released atomic.Int64 // when a connection was given back last, in Unix nanoseconds

	mu         sync.Mutex
	pool       *pgxpool.Pool // nil until first use
	migrations map[string]*migration
	closed     bool
	ended      chan struct{} // closed after the pool is closed
}

// newPostgres returns a database with this configuration. pool is the user's pool, or nil. It does
// not connect.
func newPostgres(c config, pool *pgxpool.Pool) *postgres {
	db := &postgres{config: c, pool: pool, given: pool != nil, migrations: make(map[string]*migration), ended: make(chan struct{})}
	db.life, db.end = context.WithCancel(context.Background())
	db.notifier = newNotifier(db)
	return db
}

// Dialect implements [sqlconn.Database].
func (p *postgres) Dialect() sqlconn.Dialect { return sqlconn.Postgres }

// Shared implements [sqlconn.Database]. It returns true.
func (p *postgres) Shared() bool { return true }

// Schema implements [sqlconn.Database]. It returns the name of the schema in quotes.
func (p *postgres) Schema() string { return p.config.schema }

// Text implements [sqlconn.Database]: it returns query with the schema in front of each table, and
// keeps the result. The name of each table begins with "swarmiji_" and comes after a blank in a
// statement. No other word does both.
func (p *postgres) Text(query string) string {
	if text, ok := p.texts.Load(query); ok {
		return text.(string)
	}
	text := strings.ReplaceAll(query, table, " "+p.config.schema+"."+table[1:])
	p.texts.Store(query, text)
	return text
}

// table begins the name of each table, after the blank before it.
const table = " swarmiji_"

// acquire returns a connection of the pool, and creates the pool at first use. It waits for a free
// connection until ctx or life ends. With a free connection that was used a moment ago it does not
// look at life. The caller must give the connection back with release. Returns ErrClosed after
// Close, and if life ends during the wait.
func (p *postgres) acquire(ctx, life context.Context) (*pgxpool.Conn, error) {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return nil, sqlconn.Closed()
	}
	if p.pool == nil {
		pool, err := pgxpool.NewWithConfig(context.WithoutCancel(ctx), p.config.pool)
		if err != nil {
			p.mu.Unlock()
			return nil, sqlconn.Classify(err)
		}
		p.pool = pool
	}
	pool := p.pool
	p.mu.Unlock()
	waiting := ctx
	// With a free connection that was used a moment ago there is no wait that life could end. After a
	// second the pool asks the server whether the connection lives. If another call takes it first,
	// this one waits for the next, and runs although life may have ended.
	if used := time.Duration(time.Now().UnixNano() - p.released.Load()); used > pingAfter/2 || pool.Stat().IdleConns() == 0 {
		var cancel context.CancelFunc
		waiting, cancel = context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(life, cancel)()
	}
	conn, err := pool.Acquire(waiting)
	switch {
	case err == nil:
	case life.Err() != nil, p.isClosed():
		err = sqlconn.Closed()
	case pool.Stat().AcquireCount() == 0 && ctx.Err() != nil: // no connection was ever made
		at := p.config.pool.ConnConfig
		err = sqlconn.Failure(sqlconn.ErrUnavailable, unanswered(at.Host, at.Port, "no answer yet", reach.Scheme, err))
	}
	return conn, unusable(sqlconn.Classify(err))
}

// release gives a connection of acquire back to the pool.
func (p *postgres) release(conn *pgxpool.Conn) {
	p.released.Store(time.Now().UnixNano())
	conn.Release()
}

// dial opens a connection that is not one of the pool, and waits for the server until ctx ends. The
// caller must call hangUp, which closes it within a second. Returns the client's error, not
// classified.
func (p *postgres) dial(ctx context.Context, cfg *pgx.ConnConfig) (conn *pgx.Conn, hangUp func(), err error) {
	cfg = cfg.Copy()
	// BeforeConnect of the user's pool may renew the password.
	if before := p.config.pool.BeforeConnect; before != nil {
		if err := before(ctx, cfg); err != nil {
			return nil, nil, err
		}
	}
	if conn, err = pgx.ConnectConfig(ctx, cfg); err != nil {
		return nil, nil, err
	}
	return conn, func() {
		end, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = conn.Close(end) // its work is done
	}, nil
}

// Identity implements [sqlconn.Database]: it returns the text of the first column of query, which
// it sends on a connection of its own.
func (p *postgres) Identity(ctx context.Context, query string) (answer string, err error) {
	conn, hangUp, err := p.dial(ctx, p.config.pool.ConnConfig)
	if err != nil {
		return "", unusable(sqlconn.Classify(err))
	}
	defer hangUp()
	err = conn.QueryRow(ctx, query).Scan(&answer)
	return answer, err
}

// unanswered returns the error of a connection that was not made. found names the problem and next
// the next step for a person.
func unanswered(host string, port uint16, found, next string, cause error) *reach.Error {
	at := net.JoinHostPort(host, strconv.Itoa(int(port)))
	return &reach.Error{Server: "PostgreSQL at " + at, Found: found, Next: next, Cause: cause}
}

// unusable adds the server and the next step to the error of a connection that was not made, and
// keeps its class. Returns other errors, and nil, unchanged.
func unusable(err error) error {
	c, ok := errors.AsType[*pgconn.ConnectError](err)
	if !ok {
		return err
	}
	e := unanswered(c.Config.Host, c.Config.Port, reach.Reason(c.Unwrap()), reach.Start, c)
	if refusesTLS(c) {
		e.Next = "make the server use TLS with a certificate for this host, name its authority with sslrootcert=FILE, or write sslmode=disable in the URL to send all data unencrypted"
	}
	if answer, ok := errors.AsType[*pgconn.PgError](err); ok {
		e.Found = fmt.Sprintf("%s (SQLSTATE %s)", answer.Message, answer.Code)
		switch {
		case strings.HasPrefix(answer.Code, "28"):
			e.Next = reach.Login
		case answer.Code == "3D000":
			e.Next = "create the database, or correct its name in the URL"
		default:
			e.Next = "check the server's log"
		}
	}
	return sqlconn.Failure(sqlconn.Class(err), e)
}

// refusesTLS reports whether the server has no TLS, or a certificate that cannot be verified.
func refusesTLS(err error) bool {
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return true
	}
	// The client has no type for it.
	return strings.Contains(err.Error(), "server refused TLS connection")
}

// isClosed reports whether Close was called. It takes p.mu.
func (p *postgres) isClosed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.closed
}

// Update implements [sqlconn.Database]: it runs fn in a transaction and returns its topics after
// the commit. It repeats attempts that surely had no effect, see retry. It returns the errors of
// once.
func (p *postgres) Update(ctx, life context.Context, kind sqlconn.Kind, fn sqlconn.Func) (topics []string, err error) {
	err = p.retry(ctx, life, func(ctx context.Context) error {
		topics, err = p.once(ctx, life, kind != sqlconn.Whole, fn)
		return err
	})
	return topics, err
}

// View implements [sqlconn.Database]: it runs fn on a connection outside a transaction. It repeats
// attempts that failed by a lost connection or a lock, see retry.
func (p *postgres) View(ctx, life context.Context, fn sqlconn.Func) error {
	return p.retry(ctx, life, func(ctx context.Context) error {
		conn, err := p.acquire(ctx, life)
		if err != nil {
			return &retryable{error: err}
		}
		defer p.release(conn)
		tx := sqlconn.NewTx(sqlconn.Postgres, p.link(conn.Conn()), false)
		return p.again(conn.Conn(), tx, tx.Verdict(fn(ctx, tx)))
	})
}

// retryable wraps the error of an attempt that surely had no effect and can be repeated.
type retryable struct {
	error
	success bool // a statement had succeeded
}

// Unwrap returns the wrapped error.
func (e *retryable) Unwrap() error { return e.error }

// again returns err as a retryable if a repetition can help. The error of the first failed
// statement decides, whatever the function has returned. Use it for an attempt that was rolled
// back. If the server has become a standby, it closes the connection and the idle ones of the pool:
// the repetition looks for the primary.
func (p *postgres) again(conn *pgx.Conn, tx *sqlconn.Tx, err error) error {
	if e, ok := errors.AsType[*pgconn.PgError](tx.Err()); ok && e.Code == "25006" {
		_ = conn.Close(p.life)
		if !p.given {
			p.pool.Reset()
		}
	}
	if tx.Retryable() {
		return &retryable{err, tx.Success()}
	}
	return err
}

// isTransient reports whether err has a class for which another attempt may succeed.
func isTransient(err error) bool {
	return errors.Is(err, sqlconn.ErrUnavailable) || errors.Is(err, sqlconn.ErrConflict)
}

// retry repeats attempt after retryable errors, with a growing wait, until ctx or life ends. Each
// attempt has its own ctx with the Timeout of the configuration. If that ends after a statement
// succeeded, retry returns an error: a repetition would take as long.
func (p *postgres) retry(ctx, life context.Context, attempt func(ctx context.Context) error) error {
	for n := 0; ; n++ {
		one, cancel := context.WithTimeout(ctx, p.config.Timeout)
		err := attempt(one)
		late := one.Err() != nil
		cancel()
		var r *retryable
		if !errors.As(err, &r) {
			return err
		}
		switch {
		case ctx.Err() != nil:
			return sqlconn.Ended(ctx, r.error)
		case !isTransient(err):
			return r.error
		case late && r.success:
			return fmt.Errorf("%w: it did not end within %v", r.error, p.config.Timeout)
		}
		wait := p.config.Backoff.Interval(n)
		if errors.Is(err, sqlconn.ErrConflict) {
			wait = min(wait, time.Duration(n+1)*5*time.Millisecond) // the other transaction ends soon
		}
		if !wake.SleepOr(ctx, life.Done(), wait) {
			if ctx.Err() == nil {
				return sqlconn.Closed()
			}
			return sqlconn.Ended(ctx, r.error)
		}
	}
}

// once makes one attempt of a transaction and returns the topics of a commit. With single it runs
// fn without a transaction around its statement. If fn panics, it closes the connection.
func (p *postgres) once(ctx, life context.Context, single bool, fn sqlconn.Func) ([]string, error) {
	conn, err := p.acquire(ctx, life)
	if err != nil {
		return nil, &retryable{error: err}
	}
	done := false
	defer func() {
		if !done { // the function panicked
			_ = conn.Conn().Close(ctx)
		}
		p.release(conn)
	}()
	if single {
		topics, err := p.statement(ctx, conn.Conn(), fn)
		done = true
		return topics, err
	}
	link := &pgTx{pgLink: p.link(conn.Conn())}
	tx := sqlconn.NewTx(sqlconn.Postgres, link, false)
	err = tx.Verdict(fn(ctx, tx))
	done = true
	link.closeRows()
	if !link.begun {
		return tx.Topics(), err
	}
	if err != nil {
		link.rollback(ctx)
		return nil, p.again(link.conn, tx, err)
	}
	return tx.Topics(), link.commit(ctx)
}

// statement runs a function with one statement, which is its own transaction, and returns its
// topics. Returns ErrIndeterminate if the connection is lost after the statement was sent, and a
// retryable if a repetition can help. Returns the function's other errors, even if its statement
// has succeeded.
func (p *postgres) statement(ctx context.Context, conn *pgx.Conn, fn sqlconn.Func) ([]string, error) {
	if err := unsent(ctx, conn); err != nil {
		return nil, &retryable{error: err}
	}
	tx := sqlconn.NewTx(sqlconn.Postgres, p.link(conn), true)
	err := tx.Verdict(fn(ctx, tx))
	if err == nil || tx.Err() == nil {
		return tx.Topics(), err
	}
	if errors.Is(tx.Err(), sqlconn.ErrUnavailable) && tx.Statements() > 0 && !answered(tx.Err()) {
		return nil, sqlconn.Failure(sqlconn.ErrIndeterminate, sqlconn.Cause(tx.Err()))
	}
	return nil, p.again(conn, tx, err)
}

// Close implements [sqlconn.Database]. It rolls back running migrations, waits for other calls and
// closes all connections. If ctx ends first it returns ctx's error, and a goroutine continues the
// work. It is idempotent: a further call only waits. It takes p.mu, but does not hold it while it
// waits.
func (p *postgres) Close(ctx context.Context) error {
	_ = p.notifier.close(ctx) // an error means that ctx has ended, which is returned below
	p.mu.Lock()
	first := !p.closed
	p.closed = true
	p.end() // rolls back running migrations
	pool := p.pool
	p.mu.Unlock()
	switch {
	case first && (pool == nil || p.given):
		close(p.ended)
	case first:
		go func() {
			pool.Close() // waits for running calls
			close(p.ended)
		}()
	}
	select {
	case <-p.ended:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

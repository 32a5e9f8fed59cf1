package sqlconn

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/swarmiji/swarmiji/internal/wake"
)

// postgres is a PostgreSQL database: a pool of connections.
type postgres struct {
	plan     plan
	bell     *bell
	life     context.Context // ends with close
	end      context.CancelFunc
	lockWait time.Duration

	mu         sync.Mutex
	pool       *pgxpool.Pool // nil until first used
	migrations map[string]*migration
	closed     bool
	ended      chan struct{} // closed when the pool is
}

func newPostgres(p plan) *postgres {
	db := &postgres{plan: p, lockWait: lockWait, migrations: make(map[string]*migration), ended: make(chan struct{})}
	db.life, db.end = context.WithCancel(context.Background())
	db.bell = newBell(db)
	return db
}

// acquire gets a connection of the pool.
func (p *postgres) acquire(ctx context.Context) (*pgxpool.Conn, error) {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return nil, &failure{ErrClosed, errClosed}
	}
	if p.pool == nil {
		pool, err := pgxpool.NewWithConfig(context.WithoutCancel(ctx), p.plan.pool)
		if err != nil {
			p.mu.Unlock()
			return nil, classify(err)
		}
		p.pool = pool
	}
	pool := p.pool
	p.mu.Unlock()
	conn, err := pool.Acquire(ctx)
	if err != nil && p.isClosed() {
		err = &failure{ErrClosed, errClosed}
	}
	return conn, classify(err)
}

func (p *postgres) isClosed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.closed
}

// update implements database.
func (p *postgres) update(ctx context.Context, single bool, fn Func) (topics []string, err error) {
	err = p.retry(ctx, func(ctx context.Context) error {
		topics, err = p.once(ctx, single, fn)
		return err
	})
	return topics, err
}

// view implements database.
func (p *postgres) view(ctx context.Context, fn Func) error {
	return p.retry(ctx, func(ctx context.Context) error {
		conn, err := p.acquire(ctx)
		if err != nil {
			return &retryable{err}
		}
		defer conn.Release()
		tx := &Tx{dialect: Postgres, link: pgLink{conn.Conn()}}
		return again(tx, tx.verdict(fn(ctx, tx)))
	})
}

// retryable is an error after which the attempt is surely undone, and another one may do better.
type retryable struct{ error }

func (e *retryable) Unwrap() error { return e.error }

// again marks the error of an attempt that is undone, if a repetition can help. The first statement's error says so, whatever
// the function has made of it.
func again(tx *Tx, err error) error {
	if errors.Is(tx.err, ErrUnavailable) || errors.Is(tx.err, ErrConflict) {
		return &retryable{err}
	}
	return err
}

// retry repeats attempts until one ends otherwise than retryable, or ctx does. Each attempt has a ctx of its own.
func (p *postgres) retry(ctx context.Context, attempt func(ctx context.Context) error) error {
	for n := 0; ; n++ {
		one, cancel := context.WithTimeout(ctx, p.plan.Timeout)
		err := attempt(one)
		cancel()
		var r *retryable
		if !errors.As(err, &r) {
			return err
		}
		switch {
		case ctx.Err() != nil:
			return ended(ctx, r.error)
		case !errors.Is(err, ErrUnavailable) && !errors.Is(err, ErrConflict):
			return r.error
		}
		wait := p.plan.Backoff.Interval(n)
		if errors.Is(err, ErrConflict) {
			wait = min(wait, time.Duration(n+1)*5*time.Millisecond) // the other one is about to be done
		}
		if !wake.Sleep(ctx, wait) {
			return ended(ctx, r.error)
		}
	}
}

// once is one attempt of a transaction.
func (p *postgres) once(ctx context.Context, single bool, fn Func) ([]string, error) {
	conn, err := p.acquire(ctx)
	if err != nil {
		return nil, &retryable{err}
	}
	done := false
	defer func() {
		if !done { // the function panicked
			_ = conn.Conn().Close(ctx)
		}
		conn.Release()
	}()
	if single {
		topics, err := p.statement(ctx, conn.Conn(), fn)
		done = true
		return topics, err
	}
	link := &pgTx{conn: conn.Conn()}
	tx := &Tx{dialect: Postgres, link: link}
	err = tx.verdict(fn(ctx, tx))
	done = true
	link.closeRows()
	if !link.begun {
		return tx.topics, err
	}
	if err != nil {
		link.rollback(ctx)
		return nil, again(tx, err)
	}
	return tx.topics, link.commit(ctx)
}

// statement runs a function of one statement, which is its own transaction.
func (p *postgres) statement(ctx context.Context, conn *pgx.Conn, fn Func) ([]string, error) {
	if err := unsent(ctx, conn); err != nil {
		return nil, &retryable{err}
	}
	tx := &Tx{dialect: Postgres, link: pgLink{conn}, single: true}
	err := tx.verdict(fn(ctx, tx))
	if err == nil || tx.err == nil {
		return tx.topics, err
	}
	if errors.Is(tx.err, ErrUnavailable) && tx.count > 0 && !answered(tx.err) {
		return nil, &failure{ErrIndeterminate, causeOf(tx.err)}
	}
	return nil, again(tx, err)
}

// causeOf takes the class off an error.
func causeOf(err error) error {
	if f, ok := errors.AsType[*failure](err); ok {
		return f.cause
	}
	return err
}

// close implements database.
func (p *postgres) close(ctx context.Context) error {
	if err := p.bell.close(ctx); err != nil {
		return err
	}
	p.mu.Lock()
	first := !p.closed
	p.closed = true
	p.end() // a migration under way is rolled back
	pool := p.pool
	p.mu.Unlock()
	switch {
	case first && pool == nil:
		close(p.ended)
	case first:
		go func() {
			pool.Close() // which waits for what is under way
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

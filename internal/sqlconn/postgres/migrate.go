package postgres

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/swarmiji/swarmiji/internal/sqlconn"
	"github.com/swarmiji/swarmiji/internal/wake"
)

const (
	// maxLockPause is the longest pause between two attempts. Other sessions can work during the
	// pause.
	maxLockPause = 10 * time.Second
)

// migration is a running migration. It continues when the ctx of its caller ends.
type migration struct {
	done chan struct{}
	err  error // set before done is closed
}

// Migrate implements [sqlconn.Database]. Concurrent calls for a component share one migration. If
// ctx ends, Migrate returns ErrUnavailable and the migration continues.
func (p *postgres) Migrate(ctx, life context.Context, component string, fn sqlconn.Func) error {
	return p.retry(ctx, life, func(ctx context.Context) error {
		m, err := p.migrating(component, fn)
		if err != nil {
			return err
		}
		select {
		case <-m.done:
			return m.err
		case <-life.Done():
			return sqlconn.Closed()
		case <-ctx.Done():
			return &retryable{error: sqlconn.Failure(sqlconn.ErrUnavailable, fmt.Errorf("the migration of %s is under way", component))}
		}
	})
}

// migrating returns the running migration of a component. If none runs it starts one on a
// goroutine, which sets the migration's err and closes its done at the end. Returns ErrClosed after
// Close. It takes p.mu and does not wait.
func (p *postgres) migrating(component string, fn sqlconn.Func) (*migration, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, sqlconn.Closed()
	}
	m := p.migrations[component]
	if m == nil {
		m = &migration{done: make(chan struct{})}
		p.migrations[component] = m
		go func() {
			m.err = p.migrateUnlocked(component, fn)
			p.mu.Lock()
			delete(p.migrations, component)
			p.mu.Unlock()
			close(m.done)
		}()
	}
	return m, nil
}

// migrateUnlocked repeats a migration until it gets its locks, with growing pauses, and logs a
// warning each time. Once an attempt has its locks, it has no time limit. It blocks. Returns
// ErrClosed if Close interrupts it, and all other errors of an attempt at once. Call it without
// p.mu.
func (p *postgres) migrateUnlocked(component string, fn sqlconn.Func) error {
	begun := time.Now()
	for attempt := 1; ; attempt++ {
		seen, err := p.tryMigration(fn)
		e, ok := errors.AsType[*pgconn.PgError](err)
		switch {
		case p.life.Err() != nil && err != nil:
			return sqlconn.Closed()
		case !ok || e.Code != "55P03":
			return err
		}
		p.config.Logger.Warn("postgres: a migration waits for a lock that another session holds; it tries again, and lets others go on in between",
			slog.String("component", component), slog.Int("attempt", attempt), slog.Duration("since", time.Since(begun).Round(time.Millisecond)),
			slog.String("lock", seen.lock), slog.String("holders", seen.holders))
		if !wake.Sleep(p.life, min(time.Duration(attempt)*p.config.LockWait, maxLockPause)) {
			return sqlconn.Closed()
		}
	}
}

// blockers names the lock that a session waits for, such as a table, and the sessions that hold it.
type blockers struct{ lock, holders string }

// tryMigration makes one attempt of a migration in a transaction and returns its error. A statement
// that waits for a lock fails after LockWait. Meanwhile a goroutine asks which lock that is: it
// returns this lock and its holders, or "unknown". It blocks until both have ended, or Close ends
// them.
func (p *postgres) tryMigration(fn sqlconn.Func) (blockers, error) {
	ctx, cancel := context.WithCancel(p.life)
	defer cancel()
	pid, seen := make(chan int64, 1), make(chan blockers, 1)
	go func() { seen <- p.lookWhileBlocked(ctx, pid) }()
	_, err := p.once(ctx, p.life, false, func(ctx context.Context, tx *sqlconn.Tx) error {
		var id int64
		var lock, statement string
		err := tx.Row(ctx, "SELECT pg_backend_pid(), set_config('lock_timeout', $1, true), set_config('statement_timeout', '0', true)",
			strconv.FormatInt(p.config.LockWait.Milliseconds(), 10)).Scan(&id, &lock, &statement)
		if err != nil {
			return err
		}
		pid <- id
		return fn(ctx, tx)
	})
	cancel()
	return <-seen, err
}

// lookWhileBlocked asks the server in another session which lock the session waits for whose number
// comes on pid. It does so after half of LockWait and returns the lock and its holders. If ctx ends
// first, or without an answer, it returns "unknown" for both.
func (p *postgres) lookWhileBlocked(ctx context.Context, pid <-chan int64) blockers {
	seen := blockers{"unknown", "unknown"}
	var id int64
	select {
	case id = <-pid:
	case <-ctx.Done():
		return seen
	}
	if !wake.Sleep(ctx, p.config.LockWait/2) {
		return seen
	}
	conn, err := p.acquire(ctx, p.life)
	if err != nil {
		return seen
	}
	defer p.release(conn)
	var lock, holders *string
	err = conn.QueryRow(ctx, `SELECT min(coalesce(CAST(CAST(l.relation AS regclass) AS text), l.locktype)),
			string_agg(DISTINCT format('pid %s (%s, %s, %s s)', a.pid, coalesce(nullif(a.application_name, ''), 'no name'),
				coalesce(a.state, 'another user'), coalesce(floor(extract(epoch FROM clock_timestamp() - a.xact_start))::text, '?')), '; ')
		FROM unnest(pg_blocking_pids($1)) AS b(pid) JOIN pg_stat_activity AS a ON a.pid = b.pid
		LEFT JOIN pg_locks AS l ON l.pid = $1 AND NOT l.granted`, id).Scan(&lock, &holders)
	if err == nil && holders != nil {
		seen.holders = *holders
		if lock != nil {
			seen.lock = *lock
		}
	}
	return seen
}

package sqlconn

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/swarmiji/swarmiji/internal/wake"
)

const (
	// lockWait is how long a migration waits for a lock. Statements of other sessions wait behind
	// it.
	lockWait = 2 * time.Second
	// maxLockPause is the longest pause between two attempts. Other sessions go on meanwhile.
	maxLockPause = 10 * time.Second
)

// migration is a migration that runs. It goes on when the ctxs of its callers end.
type migration struct {
	done chan struct{}
	err  error // set before done is closed
}

// migrate implements database. Callers at the same time share one migration.
func (p *postgres) migrate(ctx context.Context, component string, fn Func) error {
	return p.retry(ctx, func(ctx context.Context) error {
		m, err := p.migrating(component, fn)
		if err != nil {
			return err
		}
		select {
		case <-m.done:
			return m.err
		case <-ctx.Done():
			return &retryable{&failure{ErrUnavailable, fmt.Errorf("the migration of %s is under way", component)}}
		}
	})
}

// migrating returns the migration of a component that is under way, and starts it if there is none.
func (p *postgres) migrating(component string, fn Func) (*migration, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, &failure{ErrClosed, errClosed}
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

// migrateUnlocked repeats a migration until it gets its locks. An attempt that has them has no
// limit of time.
func (p *postgres) migrateUnlocked(component string, fn Func) error {
	begun := time.Now()
	for attempt := 1; ; attempt++ {
		seen, err := p.tryMigration(fn)
		e, ok := errors.AsType[*pgconn.PgError](err)
		switch {
		case p.life.Err() != nil && err != nil:
			return &failure{ErrClosed, errClosed}
		case !ok || e.Code != "55P03":
			return err
		}
		p.plan.Logger.Warn("postgres: a migration waits for a lock that another session holds; it tries again, and lets others go on in between",
			slog.String("component", component), slog.Int("attempt", attempt), slog.Duration("since", time.Since(begun).Round(time.Millisecond)),
			slog.String("lock", seen.lock), slog.String("holders", seen.holders))
		if !wake.Sleep(p.life, min(time.Duration(attempt)*p.lockWait, maxLockPause)) {
			return &failure{ErrClosed, errClosed}
		}
	}
}

// blockers says what a session waits for: a table or another object, and the sessions that hold it.
type blockers struct{ lock, holders string }

// tryMigration is one attempt. If it does not get a lock, it also returns the lock and its holders,
// as far as they are known.
func (p *postgres) tryMigration(fn Func) (blockers, error) {
	ctx, cancel := context.WithCancel(p.life)
	defer cancel()
	pid, seen := make(chan int64, 1), make(chan blockers, 1)
	go func() { seen <- p.lookWhileBlocked(ctx, pid) }()
	_, err := p.once(ctx, false, func(ctx context.Context, tx *Tx) error {
		var id int64
		var lock, statement string
		err := tx.Row(ctx, "SELECT pg_backend_pid(), set_config('lock_timeout', $1, true), set_config('statement_timeout', '0', true)",
			strconv.FormatInt(p.lockWait.Milliseconds(), 10)).Scan(&id, &lock, &statement)
		if err != nil {
			return err
		}
		pid <- id
		return fn(ctx, tx)
	})
	cancel()
	return <-seen, err
}

// lookWhileBlocked asks, after half of lockWait and in another session, what the session pid waits
// for.
func (p *postgres) lookWhileBlocked(ctx context.Context, pid <-chan int64) blockers {
	seen := blockers{"unknown", "unknown"}
	var id int64
	select {
	case id = <-pid:
	case <-ctx.Done():
		return seen
	}
	if !wake.Sleep(ctx, p.lockWait/2) {
		return seen
	}
	conn, err := p.acquire(ctx)
	if err != nil {
		return seen
	}
	defer conn.Release()
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

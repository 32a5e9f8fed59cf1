package main

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"time"
)

// rawSQLite is a connection to a SQLite file, with the settings that Swarmiji uses. Package open
// links the driver.
type rawSQLite struct {
	pool *sql.DB
	conn *sql.Conn
	text map[string]*sql.Stmt
}

func connectSQLite(ctx context.Context, cfg *config) (rawDB, error) {
	file, _, _ := strings.Cut(strings.TrimPrefix(cfg.Broker, "sqlite://"), "?")
	pool, err := sql.Open("sqlite", "file:"+file+"?_pragma=busy_timeout(10000)&_pragma=synchronous(FULL)&_pragma=cache_size(-8000)"+
		"&_pragma=journal_mode(WAL)&_txlock=immediate")
	if err != nil {
		return nil, err
	}
	conn, err := pool.Conn(ctx)
	if err != nil {
		return nil, errors.Join(err, pool.Close())
	}
	return &rawSQLite{pool, conn, make(map[string]*sql.Stmt)}, nil
}

func (s *rawSQLite) schema() []string {
	return []string{
		`CREATE TABLE IF NOT EXISTS bench_raw (
			seq integer PRIMARY KEY, queue text NOT NULL, due bigint NOT NULL, id text NOT NULL,
			leased bigint NOT NULL DEFAULT 0, token bigint NOT NULL DEFAULT 0, body blob NOT NULL, UNIQUE (queue, id))`,
		`CREATE INDEX IF NOT EXISTS bench_raw_due ON bench_raw (queue, max(due, leased), seq)`,
	}
}

func (s *rawSQLite) exec(ctx context.Context, text string) error {
	_, err := s.conn.ExecContext(ctx, text)
	return err
}

// prepared returns the prepared statement of a text in a transaction.
func (s *rawSQLite) prepared(ctx context.Context, tx *sql.Tx, text string) (*sql.Stmt, error) {
	st := s.text[text]
	if st == nil {
		var err error
		if st, err = s.conn.PrepareContext(ctx, text); err != nil {
			return nil, err
		}
		s.text[text] = st
	}
	return tx.StmtContext(ctx, st), nil
}

// each runs a statement once for each of the n rows of parameters, in one transaction. It returns
// the number of runs that had an effect.
func (s *rawSQLite) each(ctx context.Context, text string, n int, row func(i int) []any) (int, error) {
	tx, err := s.conn.BeginTx(ctx, nil)
	if err != nil {
		return 0, err
	}
	defer func() { _ = tx.Rollback() }() // without effect after a commit
	st, err := s.prepared(ctx, tx, text) //nolint:sqlclosecheck // it is kept
	if err != nil {
		return 0, err
	}
	done := 0
	for i := range n {
		r, err := st.ExecContext(ctx, row(i)...)
		if err != nil {
			return 0, err
		}
		k, err := r.RowsAffected()
		if err != nil {
			return 0, err
		}
		done += int(k)
	}
	return done, tx.Commit()
}

func (s *rawSQLite) insert(ctx context.Context, queue string, ids []string, bodies [][]byte) error {
	now := time.Now().UnixMicro()
	_, err := s.each(ctx, `INSERT INTO bench_raw (queue, due, id, body) VALUES ($1, $2, $3, $4) ON CONFLICT (queue, id) DO NOTHING`,
		len(ids), func(i int) []any { return []any{queue, now, ids[i], bodies[i]} })
	return err
}

const claimLite = `UPDATE bench_raw SET leased = $1, token = $2 WHERE seq IN (SELECT seq FROM bench_raw
	WHERE queue = $3 AND max(due, leased) <= $4 ORDER BY max(due, leased), seq LIMIT $5) RETURNING id, body`

func (s *rawSQLite) claim(ctx context.Context, queue string, token int64, n int) (ids []string, bodies [][]byte, err error) {
	tx, err := s.conn.BeginTx(ctx, nil)
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = tx.Rollback() }() // without effect after a commit
	now := time.Now()
	st, err := s.prepared(ctx, tx, claimLite) //nolint:sqlclosecheck // it is kept
	if err != nil {
		return nil, nil, err
	}
	rows, err := st.QueryContext(ctx, now.Add(rawLease).UnixMicro(), token, queue, now.UnixMicro(), n)
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = rows.Close() }() // without effect at their end
	for rows.Next() {
		var id string
		var body []byte
		if err := rows.Scan(&id, &body); err != nil {
			return nil, nil, err
		}
		ids, bodies = append(ids, id), append(bodies, body)
	}
	if err := rows.Err(); err != nil {
		return nil, nil, err
	}
	return ids, bodies, tx.Commit()
}

func (s *rawSQLite) settle(ctx context.Context, queue string, token int64, ids []string) (int, error) {
	return s.each(ctx, `DELETE FROM bench_raw WHERE queue = $1 AND id = $2 AND token = $3`,
		len(ids), func(i int) []any { return []any{queue, ids[i], token} })
}

func (s *rawSQLite) count(ctx context.Context, queue string) (n int, err error) {
	err = s.conn.QueryRowContext(ctx, `SELECT count(*) FROM bench_raw WHERE queue = $1`, queue).Scan(&n)
	return n, err
}

func (s *rawSQLite) close(context.Context) error {
	errs := []error{}
	for _, st := range s.text {
		errs = append(errs, st.Close())
	}
	return errors.Join(append(errs, s.conn.Close(), s.pool.Close())...)
}

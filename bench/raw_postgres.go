package main

import (
	"context"
	"errors"
	"strings"

	"github.com/jackc/pgx/v5"
)

// rawPostgres is a connection to PostgreSQL.
type rawPostgres struct{ conn *pgx.Conn }

func connectPostgres(ctx context.Context, cfg *config) (rawDB, error) {
	url, _, _ := strings.Cut(cfg.Broker, "&")
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return nil, errors.New("no connection") // the client's error may contain the password
	}
	return &rawPostgres{conn}, nil
}

func (p *rawPostgres) schema() []string {
	return []string{
		`CREATE TABLE IF NOT EXISTS bench_raw (
			queue text NOT NULL, due bigint NOT NULL, seq bigint GENERATED ALWAYS AS IDENTITY, id text NOT NULL,
			leased bigint NOT NULL DEFAULT 0, token bigint NOT NULL DEFAULT 0, body bytea NOT NULL, PRIMARY KEY (queue, id)
		) WITH (fillfactor = 60, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0)`,
		`CREATE INDEX IF NOT EXISTS bench_raw_due ON bench_raw (queue, due, seq)`,
	}
}

func (p *rawPostgres) exec(ctx context.Context, text string) error {
	_, err := p.conn.Exec(ctx, text)
	return err
}

func (p *rawPostgres) insert(ctx context.Context, queue string, ids []string, bodies [][]byte) error {
	_, err := p.conn.Exec(ctx, `INSERT INTO bench_raw (queue, due, id, body)
		SELECT $1, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint, k.id, k.body FROM unnest($2::text[], $3::bytea[]) AS k(id, body)`, queue, ids, bodies)
	return err
}

func (p *rawPostgres) claim(ctx context.Context, queue string, token int64, n int) (ids []string, bodies [][]byte, err error) {
	rows, err := p.conn.Query(ctx, `WITH t AS MATERIALIZED (SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS t),
		f AS MATERIALIZED (SELECT queue, id FROM bench_raw WHERE queue = $1 AND due <= (SELECT t FROM t) AND leased <= (SELECT t FROM t)
			ORDER BY due, seq LIMIT $2 FOR UPDATE SKIP LOCKED)
		UPDATE bench_raw AS m SET leased = (SELECT t FROM t) + $3, token = $4 FROM f WHERE m.queue = f.queue AND m.id = f.id
		RETURNING m.id, m.body`, queue, n, rawLease.Microseconds(), token)
	if err != nil {
		return nil, nil, err
	}
	for rows.Next() {
		var id string
		var body []byte
		if err := rows.Scan(&id, &body); err != nil {
			return nil, nil, err
		}
		ids, bodies = append(ids, id), append(bodies, body)
	}
	return ids, bodies, rows.Err()
}

func (p *rawPostgres) settle(ctx context.Context, queue string, token int64, ids []string) (int, error) {
	tag, err := p.conn.Exec(ctx, `DELETE FROM bench_raw WHERE queue = $1 AND id = ANY($2) AND token = $3`, queue, ids, token)
	return int(tag.RowsAffected()), err
}

func (p *rawPostgres) count(ctx context.Context, queue string) (n int, err error) {
	err = p.conn.QueryRow(ctx, `SELECT count(*) FROM bench_raw WHERE queue = $1`, queue).Scan(&n)
	return n, err
}

func (p *rawPostgres) close(ctx context.Context) error { return p.conn.Close(ctx) }

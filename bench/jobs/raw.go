package main

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// raw is the bare PostgreSQL client with one statement for each step, as a program without this
// library would use it.
type raw struct{ pool *pgxpool.Pool }

func openRaw(ctx context.Context, url string) (*raw, error) {
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, errors.New("the URL of the database is malformed")
	}
	cfg.MaxConns = 16 // as many as the store has
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, err
	}
	_, err = pool.Exec(ctx, `CREATE TABLE raw_job (
		id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
		name text NOT NULL, state text NOT NULL, priority int NOT NULL, data text NOT NULL,
		created timestamptz NOT NULL DEFAULT now(), next_run timestamptz NOT NULL DEFAULT now(), last_run timestamptz)`)
	if err == nil {
		_, err = pool.Exec(ctx, `CREATE INDEX raw_job_due ON raw_job (name, priority, next_run, id) WHERE state = 'QUEUED'`)
	}
	if err != nil {
		pool.Close()
		return nil, err
	}
	return &raw{pool}, nil
}

func (r *raw) create(ctx context.Context) error {
	var id int64
	return r.pool.QueryRow(ctx, `INSERT INTO raw_job (name, state, priority, data) VALUES ($1, 'QUEUED', 500, $2) RETURNING id`, workName, workData).Scan(&id)
}

func (r *raw) pair(ctx context.Context) error {
	var id int64
	var data string
	err := r.pool.QueryRow(ctx, `UPDATE raw_job SET state = 'RUNNING', last_run = now() WHERE id = (
		SELECT id FROM raw_job WHERE name = $1 AND state = 'QUEUED' AND next_run <= now()
		ORDER BY priority, next_run, id LIMIT 1 FOR UPDATE SKIP LOCKED) RETURNING id, data`, workName).Scan(&id, &data)
	if err != nil {
		return err
	}
	tag, err := r.pool.Exec(ctx, `DELETE FROM raw_job WHERE id = $1`, id)
	if err == nil && tag.RowsAffected() != 1 {
		err = pgx.ErrNoRows
	}
	return err
}

func (r *raw) close() { r.pool.Close() }

package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	// steps is the number of parts whose rates long reports.
	steps = 10
	// backlog is the largest number of tasks that wait or run during long.
	backlog = 20_000
)

// Step is a part of the workload long.
type Step struct {
	N     int     `json:"n"`    // tasks so far
	Rate  float64 `json:"rate"` // tasks per second, of this part
	Table int64   `json:"table_kb"`
	Index int64   `json:"index_kb"`
	Dead  int64   `json:"dead_rows"` // the server's estimate of removed rows that are still stored
}

// long passes n tasks through the queue, while at most backlog of them wait. It reports the rate of
// each tenth and the size of PostgreSQL's table. With -hold a transaction of another session is
// open all the time.
func long(ctx context.Context, cfg *config) (report Report, err error) {
	c, err := dial(ctx, cfg)
	if err != nil {
		return Report{}, err
	}
	defer func() { err = errors.Join(err, finish(ctx, c)) }()
	if err := c.declare(ctx); err != nil {
		return Report{}, err
	}
	t, err := openTable(ctx, cfg)
	if err != nil {
		return Report{}, err
	}
	defer func() { err = errors.Join(err, t.close(ctx)) }()
	var taken atomic.Int64
	part := cfg.N / steps
	passed, room := make(chan time.Time, steps), make(chan struct{}, 1)
	done, failed := make(chan struct{}), make(chan error, 1)
	sending, stop := context.WithCancel(ctx)
	defer stop()
	m := newMeter(0)
	m.start()
	go func() {
		for sent := 0; sent < cfg.N; {
			if sent-int(taken.Load()) > backlog-atOnce {
				select {
				case <-room:
				case <-sending.Done():
					return
				}
				continue
			}
			n := min(atOnce, cfg.N-sent)
			if err := c.submitAll(sending, n); err != nil {
				failed <- err
				stop()
				return
			}
			sent += n
		}
	}()
	go func() {
		defer close(done)
		last := m.begin
		for i := range steps {
			select {
			case at := <-passed:
				s := Step{N: part * (i + 1), Rate: float64(part) / at.Sub(last).Seconds()}
				last = at
				if err := t.measure(sending, &s); err != nil {
					failed <- err
					return
				}
				report.Steps = append(report.Steps, s)
			case <-sending.Done():
				return
			}
		}
	}()
	err = serveUntil(ctx, c, done, func([]byte) {
		n := int(taken.Add(1))
		if n%part == 0 && n <= part*steps {
			passed <- time.Now()
		}
		if n%1000 == 0 || n == cfg.N {
			select {
			case room <- struct{}{}:
			default:
			}
		}
	})
	stop()
	select {
	case first := <-failed:
		return Report{}, errors.Join(first, err)
	default:
	}
	all := report.Steps
	if len(all) < steps {
		return Report{}, errors.Join(fmt.Errorf("only %d of %d parts ended in time, see -timeout", len(all), steps), err)
	}
	report = m.stop(cfg.N)
	report.Steps = all
	return report, err
}

// table watches the size of the table of messages in PostgreSQL. The zero value does nothing.
type table struct {
	conn *pgx.Conn
	held pgx.Tx // with -hold
}

// openTable connects to PostgreSQL. Other brokers have no table.
func openTable(ctx context.Context, cfg *config) (t table, err error) {
	if cfg.technology() != techPostgres {
		if cfg.Hold {
			err = errors.New("-hold goes with postgres://")
		}
		return table{}, err
	}
	if t.conn, err = pgx.Connect(ctx, cfg.Broker); err != nil {
		return table{}, errors.New("no connection") // the client's error may contain the password
	}
	if !cfg.Hold {
		return t, nil
	}
	holder, err := pgx.Connect(ctx, cfg.Broker)
	if err != nil {
		return t, errors.New("no connection")
	}
	if t.held, err = holder.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead}); err == nil {
		_, err = t.held.Exec(ctx, "SELECT count(*) FROM pg_class") // takes its snapshot
	}
	return t, err
}

// measure reads the sizes of the table and its indexes.
func (t table) measure(ctx context.Context, s *Step) error {
	if t.conn == nil {
		return nil
	}
	err := t.conn.QueryRow(ctx, `SELECT pg_table_size(relid) / 1024, pg_indexes_size(relid) / 1024, n_dead_tup
		FROM pg_stat_user_tables WHERE relname = 'swarmiji_message'`).Scan(&s.Table, &s.Index, &s.Dead)
	if err != nil {
		return fmt.Errorf("size of the table: %w", err)
	}
	return nil
}

func (t table) close(ctx context.Context) error {
	var errs []error
	if t.held != nil {
		errs = append(errs, t.held.Rollback(ctx), t.held.Conn().Close(ctx))
	}
	if t.conn != nil {
		errs = append(errs, t.conn.Close(ctx))
	}
	return errors.Join(errs...)
}

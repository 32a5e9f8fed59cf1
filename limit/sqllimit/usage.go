package sqllimit

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/swarmiji/swarmiji/internal/sqlconn"
	"github.com/swarmiji/swarmiji/limit"
)

var _ limit.Reader = (*Limiter)(nil)

// Usage implements [limit.Reader]: it reads the use of the limit key in one transaction, and makes
// the tables before if needed. Returns [limit.ErrUnavailable] for every error, also if ctx has
// ended.
func (l *Limiter) Usage(ctx context.Context, key string) (u limit.Usage, err error) {
	if err := l.ready(ctx); err != nil {
		return u, fmt.Errorf("sqllimit usage: %w: %w", limit.ErrUnavailable, err)
	}
	err = l.conn.View(ctx, func(ctx context.Context, tx *sqlconn.Tx) error {
		u = limit.Usage{}
		return l.readUsage(ctx, tx, quoted(key), &u)
	})
	if err != nil {
		return limit.Usage{}, fmt.Errorf("sqllimit usage: %w: %w", limit.ErrUnavailable, err)
	}
	return u, nil
}

// readUsage reads the use of a limit into u. It returns the errors of its statement.
func (l *Limiter) readUsage(ctx context.Context, tx *sqlconn.Tx, key string, u *limit.Usage) (err error) {
	rows, err := tx.Query(ctx, l.text.usage, l.cfg.Namespace, key, limit.MaxHolders)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rows.Err(), rows.Close()) }()
	for rows.Next() {
		var ahead, lease int64
		var holder string
		var weight int
		if err := rows.Scan(&ahead, &u.Held, &holder, &weight, &lease); err != nil {
			return err
		}
		u.Ahead = time.Duration(max(0, ahead)) * time.Microsecond
		if holder == "" {
			continue // no holder
		}
		name, err := strconv.Unquote(holder)
		if err != nil {
			return err
		}
		u.Holders = append(u.Holders, limit.Holder{Name: name, Weight: weight, Lease: time.Duration(lease) * time.Microsecond})
	}
	return nil
}

package sqllimit

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/swarmiji/swarmiji/internal/sqlconn"
	"github.com/swarmiji/swarmiji/limit"
)

// state is the stored state of one permit.
type state struct {
	now  int64 // the database's time, in microseconds
	used int64 // the time up to which the rate is used
	held int64 // weight of all holders
	mine bool  // the holder holds the permit
}

// acquire grants all permits to holder, or none, in transaction tx, which has locked their keys: it
// reads their states and stores the holder and the used rates. asks must not be empty. A permit
// that holder already has gets the new lease and uses no rate.
//
// A refusal stores nothing. Its RetryAfter is the wait for the rates, 0 if only a maximum is
// reached. It returns the errors of its statements.
func (l *Limiter) acquire(ctx context.Context, tx *sqlconn.Tx, holder string, lease time.Duration, asks []limit.Ask) (limit.Decision, error) {
	states, err := l.states(ctx, tx, holder, asks)
	if err != nil {
		return limit.Decision{}, err
	}
	granted, wait := true, int64(0)
	var holds, rates []limit.Ask
	used := make(map[string]int64)
	for i, a := range asks {
		s := states[i]
		if a.Max > 0 {
			holds = append(holds, a)
			if s.mine {
				continue
			}
			granted = granted && s.held+a.Weight <= a.Max
		}
		if a.Interval > 0 {
			rates = append(rates, a)
			used[a.Key] = max(s.used, s.now) + a.Weight*a.Interval
			wait = max(wait, used[a.Key]-s.now-a.Slack)
		}
	}
	if !granted || wait > 0 {
		return limit.Decision{RetryAfter: time.Duration(wait) * time.Microsecond}, nil
	}
	now := states[0].now
	if len(holds) > 0 {
		weights := list(holds, func(_ int, a limit.Ask) int64 { return a.Weight })
		if _, err := tx.Exec(ctx, l.text.hold, l.cfg.Namespace, weights, holder, now, now+lease.Microseconds()); err != nil {
			return limit.Decision{}, err
		}
	}
	if len(rates) > 0 {
		times := list(rates, func(_ int, a limit.Ask) int64 { return used[a.Key] })
		if _, err := tx.Exec(ctx, l.text.use, l.cfg.Namespace, times); err != nil {
			return limit.Decision{}, err
		}
	}
	return limit.Decision{Granted: true}, nil
}

// states returns the state of each permit, in the order of asks. Call it after lock, in the same
// transaction. It returns the errors of its statement.
func (l *Limiter) states(ctx context.Context, tx *sqlconn.Tx, holder string, asks []limit.Ask) (states []state, err error) {
	rows, err := tx.Query(ctx, l.text.state, l.cfg.Namespace, list(asks, place), holder)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Err(), rows.Close()) }()
	states = make([]state, len(asks))
	for rows.Next() {
		var i, mine int
		var s state
		if err := rows.Scan(&i, &s.now, &s.used, &s.held, &mine); err != nil {
			return nil, err
		}
		s.mine = mine > 0
		states[i] = s
	}
	return states, nil
}

const (
	// sweepEvery is the interval of sweeps of a limiter that acquires permits.
	sweepEvery = 30 * time.Second
	// sweepBatch is the largest number of rows that one statement deletes.
	sweepBatch = 200
)

// sweep deletes rows of ended leases and of unused rates, of all namespaces. It does so at most
// once in sweepEvery, unless the last sweep left rows. A failure is logged; the next sweep tries
// again. It waits for the database.
func (l *Limiter) sweep(ctx context.Context) {
	now, last := time.Now().UnixNano(), l.swept.Load()
	if now-last < int64(sweepEvery) || !l.swept.CompareAndSwap(last, now) {
		return
	}
	for _, text := range []string{l.text.sweepHolds, l.text.sweepRates} {
		err := l.conn.Relaxed(ctx, func(ctx context.Context, tx *sqlconn.Tx) error {
			n, err := tx.Exec(ctx, text, sweepBatch)
			if n == sweepBatch {
				l.swept.Store(0) // the next call continues
			}
			return err
		})
		if err != nil {
			l.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "rows of ended leases could not be deleted; the next sweep tries again", slog.Any("error", err))
			return
		}
	}
}

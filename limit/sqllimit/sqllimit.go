package sqllimit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/swarmiji/swarmiji/internal/sqlconn"
	"github.com/swarmiji/swarmiji/internal/wake"
	"github.com/swarmiji/swarmiji/limit"
)

// Limiter is a [limit.Limiter] that stores limits in a SQL database. Make one with [New]. Safe for
// concurrent use.
type Limiter struct {
	cfg  Config
	conn *sqlconn.Conn
	text *texts

	life context.Context // ends with Close
	end  context.CancelFunc

	swept atomic.Int64 // start of the last sweep, in nanoseconds since 1970
	turns turns        // of the locks
}

var (
	_ limit.Limiter = (*Limiter)(nil)
	_ limit.Closer  = (*Limiter)(nil)
)

// New returns a Limiter. Its error joins all problems of the configuration. It does no I/O and
// starts nothing. The first call creates the tables.
func New(c Config) (*Limiter, error) {
	err := c.check()
	conn, connErr := sqlconn.Of(c.DB, "limits")
	if connErr != nil {
		connErr = fmt.Errorf("sqllimit: %w", connErr)
	}
	if err := errors.Join(err, connErr); err != nil {
		return nil, err
	}
	l := &Limiter{cfg: c, conn: conn, text: newTexts(conn.Dialect())}
	l.life, l.end = context.WithCancel(context.Background())
	return l, nil
}

// Acquire implements [limit.Limiter]: it grants all permits to holder, or none, in one transaction.
// It does not wait for permits. It waits for the database, and repeats a call of unknown outcome,
// until ctx ends. Without permits it grants and asks no database. It may delete expired rows.
//
// Returns [limit.ErrBadPermit] for invalid arguments. After [limit.ErrUnavailable], which it also
// returns after Close, the permits may be held. They become free when the lease ends.
func (l *Limiter) Acquire(ctx context.Context, holder string, lease time.Duration, ps ...limit.Permit) (limit.Decision, error) {
	asks, err := limit.Check(holder, lease, ps)
	if err != nil || len(asks) == 0 {
		return limit.Decision{Granted: err == nil}, err
	}
	var d limit.Decision
	err = l.repeat(ctx, "acquire", func() error {
		return l.locked(ctx, asks, func(ctx context.Context, tx *sqlconn.Tx) (err error) {
			d, err = l.acquire(ctx, tx, quoted(holder), lease, asks)
			return err
		})
	})
	if err != nil {
		return limit.Decision{}, err
	}
	l.sweep(ctx)
	return d, nil
}

// Renew implements [limit.Limiter]: it makes the leases of all permits with a Max end after lease
// from now. Without such permits it returns nil and asks no database. It waits for the database,
// and repeats a call of unknown outcome, until ctx ends.
//
// Returns [limit.ErrLost], with no lease changed, if the holder does not hold one of the permits.
// Returns [limit.ErrBadPermit] for invalid arguments. After [limit.ErrUnavailable], also returned
// after Close, the leases may be extended or not.
func (l *Limiter) Renew(ctx context.Context, holder string, lease time.Duration, ps ...limit.Permit) error {
	asks, err := limit.Check(holder, lease, ps)
	asks = slices.DeleteFunc(asks, func(a limit.Ask) bool { return a.Max == 0 })
	if err != nil || len(asks) == 0 {
		return err
	}
	return l.repeat(ctx, "renew", func() error {
		return l.locked(ctx, asks, func(ctx context.Context, tx *sqlconn.Tx) error {
			n, err := tx.Exec(ctx, l.text.renew, l.cfg.Namespace, list(asks, place), quoted(holder), lease.Microseconds())
			if err == nil && n < int64(len(asks)) {
				return limit.ErrLost
			}
			return err
		})
	})
}

// Release implements [limit.Limiter]: it deletes the rows of the permits that holder holds. It
// waits for the database, and repeats a call of unknown outcome, until ctx ends. Returns
// [limit.ErrBadPermit] for invalid arguments. After [limit.ErrUnavailable], also returned after
// Close, the permits may still be held. They become free when the lease ends.
func (l *Limiter) Release(ctx context.Context, holder string, ps ...limit.Permit) error {
	asks, err := limit.Check(holder, limit.MinLease, ps)
	if err != nil || len(asks) == 0 {
		return err
	}
	return l.repeat(ctx, "release", func() error {
		return l.conn.Relaxed(ctx, func(ctx context.Context, tx *sqlconn.Tx) error {
			_, err := tx.Exec(ctx, l.text.release, l.cfg.Namespace, list(asks, place), quoted(holder))
			return err
		})
	})
}

// Close ends waiting calls and leaves the database open. Held permits stay until their leases
// end. It returns ctx's error if ctx ends first. Close is idempotent.
func (l *Limiter) Close(ctx context.Context) error {
	l.end()
	return l.conn.Close(ctx)
}

// repeat makes the tables and calls fn. It calls fn again while the outcome is unknown, until ctx
// ends or Close. Repeating is harmless, except that a rate may be counted twice. It returns nil,
// [limit.ErrLost], or [limit.ErrUnavailable] for errors of the database. op names the operation.
func (l *Limiter) repeat(ctx context.Context, op string, fn func() error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(l.life, cancel)()
	for attempt := 0; ; attempt++ {
		err := l.ready(ctx)
		if err == nil {
			err = fn()
		}
		switch {
		case err == nil, errors.Is(err, limit.ErrLost):
			return err
		case !errors.Is(err, sqlconn.ErrIndeterminate) || !wake.Sleep(ctx, l.conn.Interval(attempt)):
			return fmt.Errorf("sqllimit %s: %w: %w", op, limit.ErrUnavailable, err)
		}
	}
}

// ready makes or updates the tables and waits for the database. After a success further calls
// return nil at once. After an error the next call tries again.
func (l *Limiter) ready(ctx context.Context) error { return l.conn.Ready(ctx) }

// quoted returns a key or a holder, which may be any bytes, in its stored form: ASCII text in
// quotes, without a NUL.
func quoted(text string) string { return strconv.QuoteToASCII(text) }

// list returns the permits as a JSON list of pairs for a statement, such as [["key",5]]: the quoted
// key of a permit and the result of number, which gets the index of the permit in asks and the
// permit.
func list(asks []limit.Ask, number func(i int, a limit.Ask) int64) string {
	pairs := make([][2]any, len(asks))
	for i, a := range asks {
		pairs[i] = [2]any{quoted(a.Key), number(i, a)}
	}
	text, _ := json.Marshal(pairs) // texts and numbers have a form
	return string(text)
}

// place returns i, the index of a permit in asks. It is the argument number of list for statements
// that need the index, or only the keys.
func place(i int, _ limit.Ask) int64 { return int64(i) }

// locked runs fn in a transaction that has the advisory lock of each key. All transactions take the
// locks in the order of their numbers. It waits for other transactions that hold one, and for other
// calls of this process before it uses a connection, until ctx ends or Close. Returns their errors,
// those of the database and that of fn. On SQLite the transaction needs no lock.
func (l *Limiter) locked(ctx context.Context, asks []limit.Ask, fn sqlconn.Func) error {
	if l.text.lock == "" {
		return l.conn.Update(ctx, fn)
	}
	numbers := make([]int64, len(asks))
	for i, a := range asks {
		h := fnv.New64a()
		_, _ = h.Write([]byte("swarmiji limit " + l.cfg.Namespace + " " + a.Key)) // it never fails
		numbers[i] = int64(h.Sum64())
	}
	slices.Sort(numbers)
	end, err := l.turns.take(ctx, l.life.Done(), numbers)
	if err != nil {
		return err
	}
	defer end()
	return l.conn.Update(ctx, func(ctx context.Context, tx *sqlconn.Tx) error {
		if _, err := tx.Exec(ctx, l.text.lock, numbers); err != nil {
			return err
		}
		return fn(ctx, tx)
	})
}

package sqlbroker

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"time"

	"github.com/swarmiji/swarmiji/internal/sqlconn"
)

// claim claims up to want messages, fewer if they are large, and stores them in the subscription.
// As many of them as the floor says begin at less urgent levels, in claims of their own. Its errors
// are those of claimFrom. It takes s.mu.
func (f *fetcher) claim(want int) error {
	levels := f.s.q.count()
	if f.got > 0 {
		f.took, f.got = f.got, 0
	}
	n := want
	f.s.mu.Lock()
	if f.s.bounds != nil { // they may allow fewer, and those of the floor come first
		n = min(want, max(1, f.took))
	}
	f.s.mu.Unlock()
	lower, first := f.share.Batch(n, levels)
	for i := range min(lower, levels-1) {
		each := (lower - i + levels - 2) / (levels - 1)
		if short, err := f.claimFrom(1+(first-1+i)%(levels-1), each); short || err != nil {
			return err
		}
	}
	if want == lower {
		return nil
	}
	_, err := f.claimFrom(0, want-lower)
	return err
}

// begin makes the claims look at the given level first. The less urgent ones follow, then the
// others.
func (f *fetcher) begin(level int) {
	f.levels = f.levels[:0]
	for i := level; i < f.s.q.count(); i++ {
		f.levels = append(f.levels, int64(i))
	}
	for i := 1; i < level; i++ {
		f.levels = append(f.levels, int64(i))
	}
	if level > 0 {
		f.levels = append(f.levels, 0)
	}
}

// claimFrom claims up to want messages, fewer if they are large, and stores them in the
// subscription. It looks at the given level first. short reports that it found fewer.
//
// It waits for the database, for at most a lease, and takes s.mu. Returns the errors of the
// database. After ErrIndeterminate it adds the claim to f.unknown; after any other error nothing
// was claimed.
func (f *fetcher) claimFrom(level, want int) (short bool, err error) {
	s := f.s
	f.begin(level)
	limit := firstClaim
	if f.size >= 0 {
		limit = max(1, claimBytes/(f.size+1))
	}
	if time.Since(f.reset) > cursorTime {
		f.rewind()
	}
	c := &claim{token: rand.Int64N(math.MaxInt64) + 1, sent: time.Now(), want: min(want, limit)}
	s.mu.Lock()
	c.bounds = s.bounds
	s.mu.Unlock()
	sweeps := f.ring == nil && s.b.postgres() && f.due[0] == math.MinInt64
	ctx, cancel := context.WithTimeout(s.b.calls, s.lease)
	defer cancel()
	if err := f.dropRates(ctx); err != nil {
		return false, err
	}
	if ready, err := f.mayFind(ctx, c); err != nil {
		return false, err
	} else if !ready {
		if sweeps {
			f.sweep, f.swept = time.Since(c.sent), c.sent
		}
		f.accept(c, nil, true)
		return true, nil
	}
	if f.ring != nil {
		if err := f.beginBounds(ctx, c); err != nil {
			return false, err
		}
		if err := f.pickKeys(ctx, c); err != nil {
			return false, err
		}
		if len(c.picks) == 0 {
			f.accept(c, nil, true)
			return true, nil
		}
	}
	var rows []stored
	// A claim that is lost in a crash of the server is only a redelivery: AckSync makes it durable
	// first.
	claim := f.claimEach
	switch {
	case c.bounds != nil && s.b.postgres():
		claim = f.claimLocked
	case c.bounds != nil:
		claim = f.claimWithin
	case f.ring != nil:
		claim = f.claimKeys
	case s.b.postgres():
		claim = f.claimAll
	}
	err = s.b.conn.Relaxed(ctx, func(ctx context.Context, tx *sqlconn.Tx) (err error) {
		c.sent = time.Now()
		rows, err = claim(ctx, tx, c)
		return err
	})
	if sweeps {
		f.sweep, f.swept = time.Since(c.sent), c.sent
	}
	if err != nil {
		if errors.Is(err, sqlconn.ErrIndeterminate) {
			f.unknown = append(f.unknown, c)
		}
		return false, err
	}
	f.share.Claimed(len(rows))
	f.got += len(rows)
	short = len(rows) < c.want
	if f.ring != nil {
		short = f.ring.taken(c.picks, rows) && (c.bounds == nil || len(rows) == 0)
		f.usedRates(c, rows)
	}
	f.accept(c, rows, short)
	return short, nil
}

// claimAll claims up to c.want messages of all levels for PostgreSQL, with one statement in tx, and
// returns them. It sets c.wake to the time until the next delayed message is due. Returns errors of
// the database.
func (f *fetcher) claimAll(ctx context.Context, tx *sqlconn.Tx, c *claim) (rows []stored, err error) {
	due, seq := make([]int64, len(f.levels)), make([]int64, len(f.levels))
	for i, level := range f.levels {
		due[i], seq[i] = f.due[level], f.seq[level]
	}
	found, err := tx.Query(ctx, f.s.q.text.claim, f.s.q.id, f.levels, due, seq, c.want, f.s.lease.Microseconds(), c.token)
	if err != nil {
		return nil, err
	}
	return c.scan(found)
}

// scan returns the messages of a claim on PostgreSQL and closes the query. It sets c.wake and
// c.now. Returns the first error of the query.
func (c *claim) scan(found sqlconn.Rows) (rows []stored, err error) {
	for found.Next() {
		var r stored
		var next *int64
		if err := found.Scan(append([]any{&next, &c.now}, r.columns()...)...); err != nil {
			return nil, err
		}
		c.wakeIn(next)
		if r.id != nil {
			rows = append(rows, r)
		}
	}
	return rows, errors.Join(found.Err(), found.Close())
}

// claimEach claims up to c.want messages for SQLite, with one statement in tx for each level, and
// returns them. If they are too few it sets c.wake to the time until the next delayed message is
// due. Returns errors of the database.
func (f *fetcher) claimEach(ctx context.Context, tx *sqlconn.Tx, c *claim) (rows []stored, err error) {
	text, q := f.s.q.text, f.s.q
	for _, level := range f.levels {
		found, err := tx.Query(ctx, text.claim, q.id, level, c.want-len(rows), f.s.lease.Microseconds(), c.token)
		if err != nil {
			return nil, err
		}
		if rows, err = scan(found, rows); err != nil || len(rows) >= c.want {
			return rows, err
		}
	}
	p := &peek{queue: q}
	err = f.s.b.peekIn(ctx, tx, p)
	c.wake = p.wake
	return rows, err
}

// scan appends the messages of a query to rows, returns the result and closes the query. Returns
// the first error of the query, with rows incomplete or nil.
func scan(found sqlconn.Rows, rows []stored) ([]stored, error) {
	for found.Next() {
		var r stored
		if err := found.Scan(r.columns()...); err != nil {
			return nil, err
		}
		rows = append(rows, r)
	}
	return rows, errors.Join(found.Err(), found.Close())
}

// wakeIn notes that a message is due after us microseconds: it sets c.wake if that is earlier than
// before, to at least 1 µs. It ignores nil.
func (c *claim) wakeIn(us *int64) {
	if us == nil {
		return
	}
	if d := max(time.Duration(*us)*time.Microsecond, time.Microsecond); c.wake == 0 || d < c.wake {
		c.wake = d
	}
}

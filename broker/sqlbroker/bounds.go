package sqlbroker

import (
	"cmp"
	"context"
	"hash/fnv"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/sqlconn"
	"github.com/swarmiji/swarmiji/internal/wake"
)

// maxBoundKeys limits the keys of a claim with bounds. On PostgreSQL each has a lock, and the
// server has room for about 6,400.
const maxBoundKeys = 64

// dropMax is the largest number of rates that one statement removes.
const dropMax = 10_000

// boundsOf returns a copy of b, or nil if it has no limit.
func boundsOf(b broker.Bounds) *broker.Bounds {
	if b.IsZero() {
		return nil
	}
	b.Keys = maps.Clone(b.Keys)
	return &b
}

// SetBounds implements [broker.Bounder]. It takes s.mu and does not wait.
func (s *subscription) SetBounds(b broker.Bounds) error {
	err := b.Check()
	if err == nil && s.q.turns == nil && !b.IsZero() {
		err = broker.NotFair(s.q.name, "bounds")
	}
	if err != nil {
		return wrap(err, "set the bounds of", s.q.name)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bounds = boundsOf(b)
	s.drained = false
	s.wakeFetch.Notify()
	return nil
}

// interval returns the microseconds between two messages of the rate of b, or 0 without a Rate.
func interval(b broker.Bound) int64 {
	if b.Rate == 0 {
		return 0
	}
	n := int64(b.Rate) * int64(time.Microsecond)
	return (int64(cmp.Or(b.Per, time.Second)) + n - 1) / n
}

// room returns how many messages b allows to claim, when so many are held and the rate is unused
// after the microseconds used, or nil. If its rate allows none, wait is the time until it does.
func room(b broker.Bound, held int64, used *int64) (n int, wait *int64) {
	n = math.MaxInt
	if b.Max > 0 {
		n = max(0, b.Max-int(held))
	}
	if every := interval(b); every > 0 && used != nil {
		left := *used - int64(b.Rate-1)*every
		if left > 0 {
			return 0, &left
		}
		n = min(n, b.Rate-int((max(0, *used)+every-1)/every))
	} else if every > 0 {
		n = min(n, b.Rate)
	}
	return n, nil
}

// rates are the times at which this consumer removes the used rates of keys.
type rates struct {
	drop  time.Time // zero: nothing has to be removed
	until time.Time // the end of the rates of the last claim
}

// usedRates records that the messages rows of c have used the rates of their keys.
func (f *fetcher) usedRates(c *claim, rows []stored) {
	if c.bounds == nil || len(rows) == 0 {
		return
	}
	longest := int64(0)
	for i := range rows {
		b := c.bounds.Of(rows[i].key())
		longest = max(longest, int64(b.Rate)*interval(b))
	}
	if longest == 0 {
		return
	}
	until := time.Duration(longest)*time.Microsecond + time.Millisecond
	if f.rates.until = time.Now().Add(until); f.rates.drop.IsZero() {
		f.rates.drop = f.rates.until
	}
}

// dropRates removes the rates of keys that are not used any more, if that is due. It waits for the
// database and returns its errors.
func (f *fetcher) dropRates(ctx context.Context) error {
	now := time.Now()
	if f.rates.drop.IsZero() || now.Before(f.rates.drop) {
		return nil
	}
	n, err := f.s.b.exec(ctx, "", f.s.q.text.drop, f.s.q.id, dropMax)
	switch {
	case err != nil:
		return err
	case n == dropMax: // there may be more
	case now.Before(f.rates.until):
		f.rates.drop = f.rates.until
	default:
		f.rates.drop = time.Time{}
	}
	return nil
}

// dropLastRates removes the rates of keys when the last of them is not used any more, after the
// claiming has ended. It starts a goroutine, which ends with the Broker.
func (f *fetcher) dropLastRates() {
	if f.rates.drop.IsZero() {
		return
	}
	f.s.b.start(func() {
		for attempt := 0; !f.rates.drop.IsZero() && wake.Sleep(f.s.b.life, time.Until(f.rates.until)); attempt++ {
			if f.rates.drop = f.rates.until; f.dropRates(f.s.b.calls) != nil && !f.s.b.pause(f.s.b.life, attempt) {
				return
			}
		}
	})
}

// beginBounds prepares a claim from a fair queue. With bounds it makes sure that the claims of all
// consumers mark their messages, and marks those that are held. It waits for the database and
// returns its errors.
func (f *fetcher) beginBounds(ctx context.Context, c *claim) error {
	q := f.s.q
	if c.bounds != nil && !f.bounded {
		f.bounded, f.rates.drop = true, time.Now() // earlier consumers may have left some
	}
	if c.bounds != nil && !q.inUse.Load() {
		err := f.s.b.conn.Update(ctx, func(ctx context.Context, tx *sqlconn.Tx) error {
			n, err := tx.Exec(ctx, q.text.use, q.id, true, "", 0)
			if err == nil && n > 0 {
				_, err = tx.Exec(ctx, q.text.mark, q.id)
			}
			return err
		})
		if err != nil {
			return err
		}
		q.inUse.Store(true)
	}
	return nil
}

// setAllowed gives the ring the keys with room of the first level that has some. It lowers c.want
// to the room of the queue. It sets c.wake to the time until a rate allows the next message. limit
// is the number of keys that were asked for. It returns false if more of them must be read to find
// need keys.
func (f *fetcher) setAllowed(c *claim, found keysFound, need, limit int) bool {
	r := f.ring
	r.passed = 0
	all, wait := room(c.bounds.All, found.held, found.used)
	c.wakeIn(wait)
	if c.want = min(c.want, all); c.want == 0 {
		r.set(r.order[0], nil, false)
		return true
	}
	var keys []*ringKey
	level := r.order[r.from]
	for i := range found.keys {
		k := &found.keys[i]
		if k.level != level && len(keys) > 0 {
			r.setBounded(level, keys, true)
			return true
		}
		level = k.level
		n, wait := room(c.bounds.Of(k.key), k.held, k.used)
		if c.wakeIn(wait); n == 0 {
			r.passed++
			continue
		}
		keys = append(keys, k.free(n))
	}
	whole := len(found.keys) < limit
	if !whole && len(keys) < need && limit < math.MaxInt32 {
		return false
	}
	r.setBounded(level, keys, whole)
	return true
}

// spread makes a c.wake below 20 ms a random one of 5 to 20 ms. With the rates of many keys a
// consumer would otherwise read them at each of their times, together with all others.
func (c *claim) spread() {
	if c.wake > 0 && c.wake < 20*time.Millisecond {
		c.wake = 5*time.Millisecond + rand.N(15*time.Millisecond)
	}
}

// setBounded is set for claims with bounds, which have a limit of keys.
func (r *ring) setBounded(level int64, keys []*ringKey, whole bool) {
	r.set(level, keys, whole)
	if len(r.keys) > maxBoundKeys {
		r.keys, r.whole = r.keys[:maxBoundKeys], false
	}
}

// claimLocked claims the messages of c.picks in tx within c.bounds, on PostgreSQL, and returns
// them. It waits until no other transaction claims from the same keys, and from the queue if that
// has a bound. Returns errors of the database.
func (f *fetcher) claimLocked(ctx context.Context, tx *sqlconn.Tx, c *claim) ([]stored, error) {
	s := f.s
	var locks []int64
	var keys []string
	var due, seq, n, most, rates, every []int64
	lock := func(b broker.Bound, name string) {
		if b != (broker.Bound{}) {
			locks = append(locks, f.lockKey(name))
		}
	}
	for _, p := range c.picks {
		b := c.bounds.Of(p.key)
		lock(b, " "+p.key)
		keys, due, seq, n = append(keys, p.key), append(due, p.due), append(seq, p.seq), append(n, int64(p.n))
		most, rates, every = append(most, int64(b.Max)), append(rates, int64(b.Rate)), append(every, interval(b))
	}
	all := c.bounds.All
	lock(all, "")
	slices.Sort(locks) // so that no two transactions wait for each other
	found, err := tx.QueryLocked(ctx, slices.Compact(locks), s.q.text.boundClaim, s.q.id, keys, due, seq, c.picks[0].level, s.lease.Microseconds(), c.token,
		n, most, rates, every, int64(all.Max), int64(all.Rate), interval(all))
	if err != nil {
		return nil, err
	}
	return c.scan(found)
}

// lockKey returns the number of an advisory lock of the queue. Two names may get the same number:
// their claims then wait for each other.
func (f *fetcher) lockKey(name string) int64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte("swarmiji bounds " + strconv.FormatInt(f.s.q.id, 10) + name))
	return int64(h.Sum64())
}

// claimWithin claims the messages of c.picks in tx within c.bounds, on SQLite, and returns them. A
// transaction has the whole file locked. Returns errors of the database.
func (f *fetcher) claimWithin(ctx context.Context, tx *sqlconn.Tx, c *claim) (rows []stored, err error) {
	s, text := f.s, f.s.q.text
	allowed := func(b broker.Bound, query string, args ...any) (n int, err error) {
		var held int64
		var used *int64
		if b != (broker.Bound{}) {
			err = tx.Row(ctx, query, args...).Scan(&held, &used)
		}
		n, _ = room(b, held, used)
		return n, err
	}
	use := func(b broker.Bound, whole bool, key string, n int) error {
		every := interval(b)
		if every == 0 || n == 0 {
			return nil
		}
		_, err := tx.Exec(ctx, text.use, s.q.id, whole, key, int64(n)*every)
		return err
	}
	left, err := allowed(c.bounds.All, text.boundOfAll, s.q.id)
	for _, p := range c.picks {
		b := c.bounds.Of(p.key)
		n := 0
		if err == nil {
			n, err = allowed(b, text.boundOf, s.q.id, p.key)
		}
		if n = min(n, p.n, left); n == 0 || err != nil {
			continue
		}
		before := len(rows)
		found, e := tx.Query(ctx, text.claim, s.q.id, p.level, p.key, p.due, p.seq, n, s.lease.Microseconds(), c.token, true)
		if err = e; err == nil {
			rows, err = scan(found, rows)
		}
		left -= len(rows) - before
		if err == nil {
			err = use(b, false, p.key, len(rows)-before)
		}
	}
	if err == nil {
		err = use(c.bounds.All, true, "", len(rows))
	}
	return rows, err
}

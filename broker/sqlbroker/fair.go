package sqlbroker

import (
	"context"
	"errors"
	"math"
	"strings"
	"time"

	"github.com/swarmiji/swarmiji/internal/sqlconn"
)

// manyClaimed is the number of claimed messages from which on a reading of the keys may be costly
// because of removed ones. Below it a slow reading has other reasons.
const manyClaimed = 50_000

// promoteMax is the largest number of delayed messages that become ready with one statement.
const promoteMax = 1000

// promotedWithin is the time after which a consumer looks again for delayed messages that another
// one makes ready.
const promotedWithin = 10 * time.Millisecond

// pickKeys sets c.picks, for a fair queue. It first reads the keys, unless that is costly on
// PostgreSQL and the keys of the most urgent level are known from an earlier reading. Without a
// message it sets c.wake. It also sets c.bound.
// It waits for the database and returns its errors.
func (f *fetcher) pickKeys(ctx context.Context, c *claim) error {
	r := f.ring
	c.bound = f.s.q.inUse.Load() // a reading may change it
	r.begin(f.levels)
	if r.level == 0 && r.order[0] == 0 && f.s.b.postgres() && r.claimed >= manyClaimed && f.costly() {
		if c.picks = r.pick(c.want); len(c.picks) > 0 {
			return nil
		}
	}
	if err := f.readKeys(ctx, c); err != nil {
		return err
	}
	if c.picks = r.pick(c.want); len(c.picks) == 0 {
		r.from = 0
	}
	return nil
}

// readKeys reads the keys that have the next turns. If a delayed message is due, it makes it ready
// first. It waits for the database and returns its errors.
func (f *fetcher) readKeys(ctx context.Context, c *claim) error {
	begun := time.Now()
	due, err := f.tryKeys(ctx, c)
	if err == nil && due {
		err = f.s.b.conn.Single(ctx, func(ctx context.Context, tx *sqlconn.Tx) error {
			_, err := tx.Exec(ctx, f.s.q.text.promote, f.s.q.id, promoteMax)
			return err
		})
		if errors.Is(err, sqlconn.ErrIndeterminate) {
			err = nil // it is done, or will be with the next claim
		}
		if err == nil {
			due, err = f.tryKeys(ctx, c)
		}
		if due { // another consumer promotes them, or there are more
			soon := promotedWithin.Microseconds()
			c.wakeIn(&soon)
		}
	}
	f.sweep, f.swept = time.Since(begun), begun
	return err
}

// tryKeys reads the keys that have the next turns, those that c.bounds allow. due reports that a
// delayed message is due and not ready. Otherwise it sets c.wake to the time until the next one is,
// or until a rate allows the next message. It waits for the database and returns its errors.
func (f *fetcher) tryKeys(ctx context.Context, c *claim) (due bool, err error) {
	r := f.ring
	limit := r.limit(c.want)
	if c.bounds == nil {
		found, err := f.queryKeys(ctx, c, limit)
		if err == nil {
			level := int64(0)
			keys := make([]*ringKey, len(found.keys))
			for i, k := range found.keys {
				level, keys[i] = k.level, k.free(math.MaxInt)
			}
			r.set(level, keys, len(keys) < limit)
		}
		return found.due, err
	}
	need := min(limit, maxBoundKeys)
	for limit = need + r.passed; ; limit *= 4 {
		found, err := f.queryKeys(ctx, c, limit)
		if err != nil || f.setAllowed(c, found, need, limit) {
			c.spread()
			return found.due, err
		}
	}
}

// keysFound are the keys that a statement has found, and the state of their queue.
type keysFound struct {
	keys []keyFound
	due  bool // a delayed message is due and not ready
	held int64
	used *int64 // time until the rate of the queue is unused
}

// keyFound is a key with a free message.
type keyFound struct {
	level  int64
	key    string
	weight int
	row    string // of its first free message; "" if bounds are used
	held   int64
	used   *int64 // time until its rate is unused
}

// free returns the key for the ring. Claims may get up to room messages of it.
func (k *keyFound) free(room int) *ringKey {
	return &ringKey{key: k.key, weight: k.weight, row: k.row, due: math.MinInt64, room: room}
}

// queryKeys reads up to limit keys with free messages, in the order of the turns: without bounds
// only those of the first level that has such a key. It sets c.wake to the time until the next
// delayed message is due, and c.bound. It waits for the database and returns its errors.
func (f *fetcher) queryKeys(ctx context.Context, c *claim, limit int) (all keysFound, err error) {
	s, r := f.s, f.ring
	text := s.q.text.keys
	args := func(args ...any) []any { return args }
	if c.bounds != nil {
		text = s.q.text.boundKeys
		args = func(args ...any) []any { return append(args, c.bounds.HasMax()) }
	}
	read := func(ctx context.Context, tx *sqlconn.Tx, args []any) error {
		found, err := tx.Query(ctx, text, args...)
		if err != nil {
			return err
		}
		for found.Next() {
			var next, level, weight, held *int64
			var key, row *string
			var k keyFound
			if err := found.Scan(&next, &all.held, &all.used, &level, &key, &weight, &row, &held, &k.used); err != nil {
				return err
			}
			if next != nil && *next <= 0 {
				all.due = true
			} else {
				c.wakeIn(next)
			}
			if key != nil {
				k.level, k.key, k.weight, k.row, k.held = *level, *key, int(*weight), *row, *held
				all.keys = append(all.keys, k)
			}
		}
		return errors.Join(found.Err(), found.Close())
	}
	err = s.b.conn.View(ctx, func(ctx context.Context, tx *sqlconn.Tx) error {
		all = keysFound{}
		if s.b.postgres() {
			var levels []int64
			var low, high []string
			for _, l := range r.order[r.from:] {
				for _, p := range r.parts(l) {
					levels, low, high = append(levels, p.level), append(low, p.low), append(high, p.high)
				}
			}
			return read(ctx, tx, args(s.q.id, levels, low, high, limit))
		}
		for _, l := range r.order[r.from:] {
			for _, p := range r.parts(l) {
				if n := limit - len(all.keys); n > 0 {
					if err := read(ctx, tx, args(s.q.id, p.level, p.low, p.high, n)); err != nil {
						return err
					}
				}
			}
			if len(all.keys) > 0 && c.bounds == nil {
				break
			}
		}
		return nil
	})
	if err == nil && all.used != nil {
		s.q.inUse.Store(true)
	}
	c.bound = s.q.inUse.Load()
	return all, err
}

// claimKeys claims the messages of c.picks in tx, and returns them: with one statement on
// PostgreSQL, on SQLite with one for each key and one for all rows. Returns errors of the database.
func (f *fetcher) claimKeys(ctx context.Context, tx *sqlconn.Tx, c *claim) (rows []stored, err error) {
	s := f.s
	text, level, lease := s.q.text, c.picks[0].level, s.lease.Microseconds()
	var keys, places, placeKeys []string
	var due, seq, n []int64
	for _, p := range c.picks {
		if p.row != "" {
			places, placeKeys = append(places, p.row), append(placeKeys, p.key)
		} else {
			keys, due, seq, n = append(keys, p.key), append(due, p.due), append(seq, p.seq), append(n, int64(p.n))
		}
	}
	if s.b.postgres() {
		found, err := tx.Query(ctx, text.claim, s.q.id, keys, due, seq, level, lease, c.token, n, places, placeKeys, c.bound)
		if err != nil {
			return nil, err
		}
		return c.scan(found)
	}
	run := func(query string, args ...any) error {
		found, err := tx.Query(ctx, query, args...)
		if err == nil {
			rows, err = scan(found, rows)
		}
		return err
	}
	if len(places) > 0 {
		err = run(text.claimRows, s.q.id, level, "["+strings.Join(places, ",")+"]", lease, c.token, c.bound)
	}
	for i, key := range keys {
		if err == nil {
			err = run(text.claim, s.q.id, level, key, due[i], seq[i], n[i], lease, c.token, c.bound)
		}
	}
	return rows, err
}

// keysOf returns the keys of picks.
func keysOf(picks []pick) []string {
	keys := make([]string, len(picks))
	for i, p := range picks {
		keys[i] = p.key
	}
	return keys
}

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
// message it sets c.wake.
// It waits for the database and returns its errors.
func (f *fetcher) pickKeys(ctx context.Context, c *claim) error {
	r := f.ring
	if r.level == 0 && f.s.b.postgres() && r.claimed >= manyClaimed && f.costly() {
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

// tryKeys reads the keys that have the next turns. due reports that a delayed message is due and
// not ready. Otherwise it sets c.wake to the time until the next one is. It waits for the database
// and returns its errors.
func (f *fetcher) tryKeys(ctx context.Context, c *claim) (due bool, err error) {
	s, r := f.s, f.ring
	limit := r.limit(c.want)
	var keys []*ringKey
	var level int64
	read := func(ctx context.Context, tx *sqlconn.Tx, args ...any) error {
		found, err := tx.Query(ctx, s.q.text.keys, args...)
		if err != nil {
			return err
		}
		for found.Next() {
			var next, of, weight *int64
			var key, row *string
			if err := found.Scan(&next, &of, &key, &weight, &row); err != nil {
				return err
			}
			if next != nil && *next <= 0 {
				due = true
			} else {
				c.wakeIn(next)
			}
			if key != nil {
				level = *of
				keys = append(keys, &ringKey{key: *key, weight: int(*weight), row: *row, due: math.MinInt64})
			}
		}
		return errors.Join(found.Err(), found.Close())
	}
	err = s.b.conn.View(ctx, func(ctx context.Context, tx *sqlconn.Tx) error {
		keys, due = nil, false
		if s.b.postgres() {
			var levels []int64
			var low, high []string
			for _, l := range f.levels[r.from:] {
				for _, p := range r.parts(l) {
					levels, low, high = append(levels, p.level), append(low, p.low), append(high, p.high)
				}
			}
			return read(ctx, tx, s.q.id, levels, low, high, limit)
		}
		for _, l := range f.levels[r.from:] {
			for _, p := range r.parts(l) {
				if n := limit - len(keys); n > 0 {
					if err := read(ctx, tx, s.q.id, p.level, p.low, p.high, n); err != nil {
						return err
					}
				}
			}
			if len(keys) > 0 {
				break
			}
		}
		return nil
	})
	if err == nil {
		r.set(level, keys, len(keys) < limit)
	}
	return due, err
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
		found, err := tx.Query(ctx, text.claim, s.q.id, keys, due, seq, level, lease, c.token, n, places, placeKeys)
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
		err = run(text.claimRows, s.q.id, level, "["+strings.Join(places, ",")+"]", lease, c.token)
	}
	for i, key := range keys {
		if err == nil {
			err = run(text.claim, s.q.id, level, key, due[i], seq[i], n[i], lease, c.token)
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

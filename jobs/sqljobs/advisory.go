package sqljobs

import (
	"context"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/swarmiji/swarmiji/internal/sqlconn"
	"github.com/swarmiji/swarmiji/jobs/jobstore"
)

// The kinds of advisory locks, as prefixes of the hashed name.
const (
	nameLock   = "swarmiji job name "
	callerLock = "swarmiji job lock "
	kindLock   = "swarmiji job locks of a kind "
)

// mostLocks is the number of names of Lock that one transaction locks separately. The same limit
// applies to names of jobs. PostgreSQL has space for some 6,400 locks by default, which all its
// clients share. A transaction with more names locks all names of their kind with one lock.
const mostLocks = 512

// lockKey returns the number of an advisory lock: a hash of its kind and its name. Two names may
// get the same number: their holders then wait for each other.
func lockKey(kind, name string) int64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(kind))
	_, _ = h.Write([]byte(name))
	return int64(h.Sum64())
}

// The statements about advisory locks, which only PostgreSQL has. $1 is the lock of a kind, $2
// holds the locks of names.
const (
	// The lock of the kind comes first. It is shared with transactions that lock names separately.
	lockEach = `WITH k AS MATERIALIZED (SELECT pg_advisory_xact_lock_shared(CAST($1 AS bigint)))
		SELECT pg_advisory_xact_lock(v.n) FROM k CROSS JOIN unnest(CAST($2 AS bigint[])) AS v(n)`
	// lockEachSoon waits for each lock as long as $3 says. Then it fails.
	lockEachSoon = `WITH w AS MATERIALIZED (SELECT current_setting('lock_timeout') AS before, set_config('lock_timeout', $3, true)),
		k AS MATERIALIZED (SELECT CAST(pg_advisory_xact_lock_shared(CAST($1 AS bigint)) AS text) FROM w),
		n AS MATERIALIZED (SELECT CAST(pg_advisory_xact_lock(v.n) AS text) FROM k CROSS JOIN unnest(CAST($2 AS bigint[])) AS v(n))
		SELECT set_config('lock_timeout', (SELECT before FROM w), true) FROM (SELECT count(*) FROM n) AS c`
	// tryEach returns how many of the names it has locked.
	tryEach = `WITH k AS MATERIALIZED (SELECT pg_try_advisory_xact_lock_shared(CAST($1 AS bigint)) AS free)
		SELECT count(*) FROM k CROSS JOIN unnest(CAST($2 AS bigint[])) AS v(n) WHERE k.free AND pg_try_advisory_xact_lock(v.n)`
	lockKind = "SELECT pg_advisory_xact_lock(CAST($1 AS bigint))"
	// lockKindSoon waits as long as $2 says. Then it fails. All others wait behind it.
	lockKindSoon = `WITH w AS MATERIALIZED (SELECT current_setting('lock_timeout') AS before, set_config('lock_timeout', $2, true)),
		k AS MATERIALIZED (SELECT CAST(pg_advisory_xact_lock(CAST($1 AS bigint)) AS text) FROM w)
		SELECT set_config('lock_timeout', (SELECT before FROM w), true) FROM (SELECT count(*) FROM k) AS c`
	// A name is in use if its lock is held, or if a transaction holds the lock of all names.
	tryNamesText = `WITH k AS MATERIALIZED (SELECT pg_try_advisory_xact_lock(CAST($1 AS bigint)) AS free)
		SELECT v.n FROM k CROSS JOIN unnest(CAST($2 AS bigint[])) AS v(n) WHERE k.free AND pg_try_advisory_xact_lock(v.n)`
)

// Lock locks the names until the transaction ends, and blocks while other transactions hold them.
// It implements [jobstore.Tx]. The word before the first blank of a name is its kind; without a
// blank the kind is empty. Beyond mostLocks names in a transaction it locks all names of a kind at
// once.
//
// In a transaction of a caller it does not wait: it fails with ErrUnavailable if another
// transaction holds a name.
//
// A transaction on SQLite has the whole file locked, so Lock only checks the names there. Returns
// ErrBadJob if a name does not have 1 to 300 bytes, and ErrUnsupported in a View. Each error, also
// one of the database, fails the transaction.
func (t *tx) Lock(ctx context.Context, names ...string) error {
	return t.eachKind(names, func(kind string, keys []int64) error {
		query, args := lockEach, []any{lockKey(kindLock, kind), keys}
		if t.joined {
			var n int
			err := t.c.Row(ctx, tryEach, args...).Scan(&n)
			if err == nil && n != len(keys) {
				err = fmt.Errorf("%w: another transaction has locked the key (%s); try again", jobstore.ErrUnavailable, kind)
			}
			return err
		}
		if t.locks += len(keys); t.locks > mostLocks {
			query, args = lockKind, args[:1]
		}
		_, err := t.c.Exec(ctx, query, args...)
		return err
	})
}

// LockSoon locks names as Lock does, but waits no longer than within for each lock. It returns
// false, without an error, if another transaction holds a name for longer; the transaction can then
// only be rolled back. It implements [jobstore.HastyLocker].
//
// In a transaction of a caller it is Lock, which does not wait. On SQLite it only checks the names
// and returns true. Returns the errors of Lock.
func (t *tx) LockSoon(ctx context.Context, within time.Duration, names ...string) (bool, error) {
	if t.joined {
		err := t.Lock(ctx, names...)
		return err == nil, err
	}
	locked, wait := true, strconv.FormatInt(within.Milliseconds(), 10)
	err := t.eachKind(names, func(kind string, keys []int64) error {
		if !locked {
			return nil // the transaction has failed
		}
		query, args := lockEachSoon, []any{lockKey(kindLock, kind), keys, wait}
		if t.locks += len(keys); t.locks > mostLocks {
			query, args = lockKindSoon, []any{lockKey(kindLock, kind), wait}
		}
		t.c.Hasty(true)
		_, err := t.c.Exec(ctx, query, args...)
		if sqlconn.IsLocked(err) {
			locked = false
			return nil
		}
		t.c.Hasty(false)
		return err
	})
	return locked && err == nil, err
}

// eachKind calls fn for each kind of the names, with the numbers of their locks in order. It checks
// the names. On SQLite it calls nothing. An error fails the transaction.
func (t *tx) eachKind(names []string, fn func(kind string, keys []int64) error) error {
	if err := t.writes("lock"); err != nil {
		return err
	}
	kinds := map[string][]int64{}
	for _, name := range names {
		if name == "" || len(name) > 300 {
			return t.fail("lock", fmt.Errorf("%w: the name of a lock has %d bytes, not 1 to 300", jobstore.ErrBadJob, len(name)))
		}
		kind, _, ok := strings.Cut(name, " ")
		if !ok {
			kind = ""
		}
		kinds[kind] = append(kinds[kind], lockKey(callerLock, name))
	}
	if t.s.lite {
		return nil
	}
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		keys := kinds[kind]
		slices.Sort(keys)
		if err := fn(kind, slices.Compact(keys)); err != nil {
			return t.fail("lock", err)
		}
	}
	return nil
}

// allNames is the lock key for the names of all jobs.
var allNames = lockKey(kindLock, nameLock)

// nameKey returns the lock key that protects the name of a job from a sweep (the removal of names
// without jobs). It counts the names of this transaction; after mostLocks it returns allNames. It
// locks nothing.
func (t *tx) nameKey(name string) int64 {
	if t.named++; t.named > mostLocks {
		return allNames
	}
	return lockKey(nameLock, name)
}

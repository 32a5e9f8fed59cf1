package sqloutbox

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/swarmiji/swarmiji/internal/sqlconn"
	"github.com/swarmiji/swarmiji/outbox"
)

// bucket is a row of swarmiji_outbox_bucket: the relay that has leased the bucket, or "", and the
// end of the lease in microseconds.
type bucket struct {
	number int64
	owner  string
	until  int64
}

// Lease implements [outbox.Store]: one transaction registers the relay, renews its leases, and
// returns the buckets that it holds from now on. It locks all buckets of the namespace, so calls of
// several relays run one after the other. It waits for the database and returns the errors of
// update.
func (s *Store) Lease(ctx context.Context, relay string, lease time.Duration) (share outbox.Share, err error) {
	err = s.update(ctx, "lease", func(ctx context.Context, tx *sqlconn.Tx) error {
		share, err = s.lease(ctx, tx, relay, lease.Microseconds())
		return err
	})
	return share, err
}

// lease does the work of Lease in transaction tx; the length of the lease is in microseconds. It
// inserts the buckets of the namespace if they are missing, and deletes relays whose time has
// passed. It returns the errors of its statements.
func (s *Store) lease(ctx context.Context, tx *sqlconn.Tx, relay string, lease int64) (outbox.Share, error) {
	all, err := s.buckets(ctx, tx)
	if err == nil && len(all) < outbox.Buckets {
		if _, err = tx.Exec(ctx, s.text.addBuckets, s.cfg.Namespace); err == nil {
			all, err = s.buckets(ctx, tx)
		}
	}
	if err != nil {
		return outbox.Share{}, err
	}
	if _, err := tx.Exec(ctx, s.text.here, s.cfg.Namespace, relay, lease); err != nil {
		return outbox.Share{}, err
	}
	if _, err := tx.Exec(ctx, s.text.oldRelays, s.cfg.Namespace); err != nil {
		return outbox.Share{}, err
	}
	relays, err := s.relays(ctx, tx)
	if err != nil {
		return outbox.Share{}, err
	}
	now, err := tx.Now(ctx)
	if err != nil {
		return outbox.Share{}, err
	}
	keep, release := divide(all, relays, relay, now)
	share := outbox.Share{Missing: shareOf(relays, relay) - len(keep)}
	for _, b := range keep {
		share.Buckets = append(share.Buckets, int(b))
	}
	if err := s.give(ctx, tx, keep, relay, now+lease); err != nil {
		return outbox.Share{}, err
	}
	return share, s.give(ctx, tx, release, "", 0)
}

// give sets the owner of buckets and the end of its lease, in microseconds since 1970. An empty
// owner releases them. It returns the error of its statement.
func (s *Store) give(ctx context.Context, tx *sqlconn.Tx, buckets []int64, owner string, until int64) error {
	if len(buckets) == 0 {
		return nil
	}
	_, err := tx.Exec(ctx, s.text.own, s.cfg.Namespace, s.text.list(buckets), owner, until)
	return err
}

// shareOf returns how many buckets relay should have. relays holds the names of all live relays in
// order, with relay. If the buckets cannot be divided equally, the first relays have one more.
func shareOf(relays []string, relay string) int {
	n := outbox.Buckets / len(relays)
	if slices.Index(relays, relay) < outbox.Buckets%len(relays) {
		n++
	}
	return n
}

// divide returns the buckets that relay holds from now on, in ascending order, and those that it
// releases. It keeps the buckets of relay up to its share, and adds free buckets of all. It changes
// nothing in the database.
func divide(all []bucket, relays []string, relay string, now int64) (keep, release []int64) {
	want := shareOf(relays, relay)
	for _, b := range all {
		switch {
		case b.owner != relay:
		case len(keep) < want:
			keep = append(keep, b.number)
		default:
			release = append(release, b.number)
		}
	}
	for _, b := range all {
		if b.owner != relay && b.until <= now && len(keep) < want {
			keep = append(keep, b.number)
		}
	}
	slices.Sort(keep)
	return keep, release
}

// buckets returns all buckets of the namespace in the order of their numbers. It locks their rows
// until the transaction ends: it waits for transactions that hold them. It returns the errors of
// its statement.
func (s *Store) buckets(ctx context.Context, tx *sqlconn.Tx) ([]bucket, error) {
	rows, err := tx.Query(ctx, s.text.buckets, s.cfg.Namespace)
	if err != nil {
		return nil, err
	}
	var all []bucket
	for rows.Next() {
		var b bucket
		if err := rows.Scan(&b.number, &b.owner, &b.until); err != nil {
			return nil, err
		}
		all = append(all, b)
	}
	return all, errors.Join(rows.Err(), rows.Close())
}

// relays returns the names of the live relays, sorted. It returns the errors of its statement.
func (s *Store) relays(ctx context.Context, tx *sqlconn.Tx) ([]string, error) {
	rows, err := tx.Query(ctx, s.text.relays, s.cfg.Namespace)
	if err != nil {
		return nil, err
	}
	var all []string
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			return nil, err
		}
		all = append(all, name)
	}
	return all, errors.Join(rows.Err(), rows.Close())
}

// Leave implements [outbox.Store]: one transaction releases all buckets of the relay and forgets
// it. It waits for the database and returns the errors of update.
func (s *Store) Leave(ctx context.Context, relay string) error {
	return s.update(ctx, "leave", func(ctx context.Context, tx *sqlconn.Tx) error {
		if _, err := tx.Exec(ctx, s.text.leave, s.cfg.Namespace, relay); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, s.text.removeRelay, s.cfg.Namespace, relay)
		return err
	})
}

package sqljobs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"time"

	"github.com/swarmiji/swarmiji/internal/sqlconn"
	"github.com/swarmiji/swarmiji/jobs/jobstore"
)

// tx is one run of a caller's function.
type tx struct {
	s    *Store
	c    *sqlconn.Tx
	view bool
	now  int64
	err  error // spoils the transaction

	had    []had    // the names of jobs that are stored and locked
	given  []string // names that got a time
	fresh  int      // how many names were new, or may have been
	learnt *learnt
}

// had is the name of a job as it is stored.
type had struct {
	id   jobstore.ID
	name string
}

var (
	_ jobstore.Tx      = (*tx)(nil)
	_ jobstore.Taker   = (*tx)(nil)
	_ jobstore.Dropper = (*tx)(nil)
	_ jobstore.Weigher = (*tx)(nil)
)

// fail notes an error, which spoils the transaction.
func (t *tx) fail(what string, err error) error {
	if err == nil {
		return nil
	}
	err = wrap(what, err)
	if t.err == nil {
		t.err = err
	}
	return err
}

// writes is called before whatever changes something.
func (t *tx) writes(what string) error {
	if t.view {
		return t.fail(what, fmt.Errorf("%w: a View changes nothing", jobstore.ErrUnsupported))
	}
	return t.err
}

// Now implements [jobstore.Tx].
func (t *tx) Now(context.Context) (time.Time, error) {
	return moment(t.clock()), t.err
}

func (t *tx) clock() int64 {
	us := t.s.clockNow()
	t.now = max(t.now, us)
	return t.now
}

// clockNow is the store's time: the machine's for a file, on which every process that uses it is.
func (s *Store) clockNow() int64 {
	if s.lite {
		return time.Now().UnixMicro()
	}
	return s.clock.now()
}

// Kinds of locks beside those of rows.
const (
	nameLock   = "swarmiji job name "
	callerLock = "swarmiji job lock "
)

// lockKey is the number of a lock. Two names may share one, and then wait for each other needlessly.
func lockKey(kind, name string) int64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(kind))
	_, _ = h.Write([]byte(name))
	return int64(h.Sum64())
}

// Lock implements [jobstore.Tx]. A transaction of SQLite has the whole file.
func (t *tx) Lock(ctx context.Context, names ...string) error {
	if err := t.writes("lock"); err != nil {
		return err
	}
	keys := make([]int64, 0, len(names))
	for _, name := range names {
		if name == "" || len(name) > 300 {
			return t.fail("lock", fmt.Errorf("%w: the name of a lock has %d bytes, not 1 to 300", jobstore.ErrBadJob, len(name)))
		}
		keys = append(keys, lockKey(callerLock, name))
	}
	if t.s.lite || len(keys) == 0 {
		return nil
	}
	slices.Sort(keys)
	_, err := t.c.Exec(ctx, t.s.text.advisory, slices.Compact(keys))
	return t.fail("lock", err)
}

// jobs reads the answer of a statement. Those without an id are counted apart.
func (t *tx) jobs(ctx context.Context, query string, args ...any) (found []jobstore.Row, empty int, err error) {
	rows, err := t.c.Query(ctx, query, args...)
	if err != nil {
		return nil, 0, err
	}
	for rows.Next() {
		found = append(found, jobstore.Row{})
		j := &found[len(found)-1]
		if err := scan(rows, j); err != nil {
			return nil, 0, err
		}
		if j.ID == 0 {
			found = found[:len(found)-1]
			empty++
		}
	}
	if err := errors.Join(rows.Err(), rows.Close()); err != nil {
		return nil, 0, err
	}
	if !t.view {
		for i := range found {
			t.had = append(t.had, had{found[i].ID, found[i].Name})
		}
	}
	return found, empty, nil
}

// Get implements [jobstore.Tx].
func (t *tx) Get(ctx context.Context, id jobstore.ID) (jobstore.Row, error) {
	if t.err != nil {
		return jobstore.Row{}, t.err
	}
	query := t.s.text.lock
	if t.view {
		query = t.s.text.get
	}
	found, _, err := t.jobs(ctx, query, int64(id))
	switch {
	case err != nil:
		return jobstore.Row{}, t.fail("get", err)
	case len(found) == 0:
		return jobstore.Row{}, jobstore.ErrNotFound
	}
	return found[0], nil
}

// Delete implements [jobstore.Tx].
func (t *tx) Delete(ctx context.Context, ids ...jobstore.ID) error {
	if err := t.writes("delete"); err != nil || len(ids) == 0 {
		return err
	}
	all := make([]int64, len(ids))
	for i, id := range ids {
		all[i] = int64(id)
	}
	if !t.s.lite {
		slices.Sort(all)
		_, err := t.c.Exec(ctx, t.s.text.delete, all)
		return t.fail("delete", err)
	}
	for _, id := range all {
		if _, err := t.c.Exec(ctx, t.s.text.delete, id); err != nil {
			return t.fail("delete", err)
		}
		if _, err := t.c.Exec(ctx, t.s.text.dropMessage, id); err != nil {
			return t.fail("delete", err)
		}
	}
	return nil
}

// Messages implements [jobstore.Tx].
func (t *tx) Messages(ctx context.Context, ids ...jobstore.ID) (map[jobstore.ID][]byte, error) {
	found := map[jobstore.ID][]byte{}
	if t.err != nil || len(ids) == 0 {
		return found, t.err
	}
	var list any = ids
	if t.s.lite {
		list = asJSON(ids)
	} else {
		all := make([]int64, len(ids))
		for i, id := range ids {
			all[i] = int64(id)
		}
		list = all
	}
	rows, err := t.c.Query(ctx, t.s.text.messages, list)
	if err != nil {
		return nil, t.fail("messages", err)
	}
	for rows.Next() {
		var id int64
		var message []byte
		if err := rows.Scan(&id, &message); err != nil {
			return nil, t.fail("messages", err)
		}
		found[jobstore.ID(id)] = message
	}
	return found, t.fail("messages", errors.Join(rows.Err(), rows.Close()))
}

// Drop implements [jobstore.Dropper].
func (t *tx) Drop(ctx context.Context, id jobstore.ID, token int64) (bool, error) {
	if err := t.writes("drop"); err != nil {
		return false, err
	}
	n, err := t.c.Exec(ctx, t.s.text.drop, int64(id), token)
	return n > 0, t.fail("drop", err)
}

// inOrder sorts jobs in the order in which they are handed out.
func inOrder(a, b *jobstore.Row) int {
	return cmp.Or(cmp.Compare(a.Priority, b.Priority), a.Due.Compare(b.Due), cmp.Compare(a.ID, b.ID))
}

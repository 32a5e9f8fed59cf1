package sqljobs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/swarmiji/swarmiji/internal/sqlconn"
	"github.com/swarmiji/swarmiji/jobs/jobstore"
	"github.com/swarmiji/swarmiji/task"
)

// use describes the transactions of one method of Store.
type use struct {
	view   bool // they change nothing
	once   bool // they call one method of tx, besides Now; so they need not note stored values
	joined bool // they are transactions of callers, in which Lock must not wait
}

// tx is one transaction: one call of the function that the caller passed to Update, View, Single or
// Insert.
type tx struct {
	use
	s   *Store
	c   *sqlconn.Tx
	now int64
	err error // first error; the transaction then fails

	had    map[jobstore.ID]*jobstore.Row  // jobs as stored, which this transaction has locked
	waits  map[task.ID]*jobstore.Deferral // deferrals as stored, which this transaction has locked
	locks  int                            // number of names locked with Lock
	named  int                            // number of job names locked
	given  []string                       // wake-up words to send after the commit
	fresh  int                            // number of names that were new, or may have been
	learnt *learnt
}

var (
	_ jobstore.Tx      = (*tx)(nil)
	_ jobstore.Taker   = (*tx)(nil)
	_ jobstore.Dropper = (*tx)(nil)
	_ jobstore.Weigher = (*tx)(nil)

	_ jobstore.HastyLocker = (*tx)(nil)
)

// fail stores err, as wrap converts it, as the transaction's error unless it already has one: the
// transaction is then rolled back. Returns the converted error. A nil err changes nothing and
// returns nil. what names the step.
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

// writes checks that the transaction can change data. Every method that changes data calls it
// first. Returns nil if it can, and the earlier error of a failed transaction. In a View it fails
// the transaction with ErrUnsupported and returns that error. what names the method.
func (t *tx) writes(what string) error {
	if t.view {
		return t.fail(what, fmt.Errorf("%w: a View changes nothing", jobstore.ErrUnsupported))
	}
	return t.err
}

// Now returns the store's time, which never runs backwards in a transaction. It does no I/O.
// Returns the time also with the error of a failed transaction. It implements [jobstore.Tx].
func (t *tx) Now(context.Context) (time.Time, error) {
	return moment(t.clock()), t.err
}

// clock returns the store's time in microseconds, never less than an earlier result in this
// transaction. It stores the result in t.now.
func (t *tx) clock() int64 {
	us := t.s.clockNow()
	t.now = max(t.now, us)
	return t.now
}

// clockNow returns the store's time in microseconds since 1970, without I/O. For a SQLite file this
// is the time of the machine, which all processes that use the file share. For PostgreSQL it is a
// lower bound of the server's time.
func (s *Store) clockNow() int64 {
	if s.lite {
		return time.Now().UnixMicro()
	}
	return s.clock.now()
}

// jobs runs a statement that selects and locks jobs, and returns these jobs. It notes their stored
// values for later saves (note). empty is the number of rows without an id. An error does not fail
// the transaction.
func (t *tx) jobs(ctx context.Context, query string, args ...any) (found []jobstore.Row, empty int, err error) {
	found, empty, err = t.read(ctx, query, args...)
	if err == nil {
		for i := range found {
			t.note(&found[i])
		}
	}
	return found, empty, err
}

// note stores a copy of j in t.had, with which a later save compares. It does nothing in a View, or
// if the transaction calls only one method. Call it for a job that this transaction has locked,
// with its stored values.
func (t *tx) note(j *jobstore.Row) {
	if t.view || t.once {
		return
	}
	if was := t.had[j.ID]; was != nil {
		*was = *j
		return
	}
	if t.had == nil {
		t.had = make(map[jobstore.ID]*jobstore.Row)
	}
	t.had[j.ID] = new(*j)
}

// read runs a query and returns the jobs of its rows. The query must return the list of the
// function columns. empty is the number of rows without an id, which are left out. An error does
// not fail the transaction.
func (t *tx) read(ctx context.Context, query string, args ...any) (found []jobstore.Row, empty int, err error) {
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
	return found, empty, nil
}

// Get returns a job, without its message. Except in a View it locks the job, and waits for other
// holders. Returns ErrNotFound if the job does not exist; that does not fail the transaction. A
// database error fails the transaction, and later calls return it. It implements [jobstore.Tx].
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

// Delete deletes the jobs in any state, with their messages, and notifies no watcher. Missing ids
// are ignored. Returns ErrUnsupported in a View. A database error fails the transaction, and later
// calls return it. It implements [jobstore.Tx].
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

// ExpireJobs deletes at most limit jobs that expire at or before by, the oldest first, with their
// messages, and returns their number. On PostgreSQL it skips locked jobs. Returns ErrUnsupported
// in a View. A database error fails the transaction, and later calls return it. It implements
// [jobstore.Tx].
func (t *tx) ExpireJobs(ctx context.Context, by time.Time, limit int) (int, error) {
	if err := t.writes("expire jobs"); err != nil {
		return 0, err
	}
	if t.s.lite {
		if _, err := t.c.Exec(ctx, t.s.text.expireMessages, by.UnixMicro(), limit); err != nil {
			return 0, t.fail("expire jobs", err)
		}
	}
	n, err := t.c.Exec(ctx, t.s.text.expireJobs, by.UnixMicro(), limit)
	return int(n), t.fail("expire jobs", err)
}

// Messages returns the stored messages of the jobs, by id. Jobs without a message are missing from
// the map, which is empty, not nil, if no job has a message. It locks nothing. A database error
// fails the transaction, and later calls return it. It implements [jobstore.Tx].
func (t *tx) Messages(ctx context.Context, ids ...jobstore.ID) (map[jobstore.ID][]byte, error) {
	found := map[jobstore.ID][]byte{}
	if t.err != nil || len(ids) == 0 {
		return found, t.err
	}
	var list any
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

// Drop deletes a running job if its token matches and no other job or later run depends on it
// ([jobstore.Row.Simple]). A token of 0 matches every token. It reports whether it deleted the
// job; false is not an error. Returns ErrUnsupported in a View. A database error fails the
// transaction, and later calls return it. It implements [jobstore.Dropper].
func (t *tx) Drop(ctx context.Context, id jobstore.ID, token int64) (bool, error) {
	if err := t.writes("drop"); err != nil {
		return false, err
	}
	n, err := t.c.Exec(ctx, t.s.text.drop, int64(id), token)
	return n > 0, t.fail("drop", err)
}

// inOrder compares two jobs in the order in which they are claimed: priority, due time, id.
func inOrder(a, b *jobstore.Row) int {
	return cmp.Or(cmp.Compare(a.Priority, b.Priority), a.Due.Compare(b.Due), cmp.Compare(a.ID, b.ID))
}

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

// tx is one run of a caller's function.
type tx struct {
	s    *Store
	c    *sqlconn.Tx
	view bool
	now  int64
	err  error // spoils the transaction

	had    map[jobstore.ID]*jobstore.Row  // jobs as they are stored, which this transaction has locked
	waits  map[task.ID]*jobstore.Deferral // the same of deferrals
	locks  int                            // how many names it has locked, each by itself or by their kind
	named  int                            // the same of names of jobs
	given  []string                       // names that got a time
	fresh  int                            // how many names were new, or may have been
	learnt *learnt
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

// jobs is read by a statement that locks the jobs, and notes them.
func (t *tx) jobs(ctx context.Context, query string, args ...any) (found []jobstore.Row, empty int, err error) {
	found, empty, err = t.read(ctx, query, args...)
	if err == nil && !t.view {
		for i := range found {
			t.note(&found[i])
		}
	}
	return found, empty, err
}

// note remembers a job as it is stored now, which this transaction has locked.
func (t *tx) note(j *jobstore.Row) {
	if t.had == nil {
		t.had = make(map[jobstore.ID]*jobstore.Row)
	}
	t.had[j.ID] = new(*j)
}

// read reads the answer of a statement. Those without an id are counted apart.
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

// ExpireJobs implements [jobstore.Tx].
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

// Messages implements [jobstore.Tx].
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

package sqljobs

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/swarmiji/swarmiji/jobs/jobstore"
)

// spare is the number of candidates that are read beyond the wanted number. Other transactions may
// have locked the first candidates.
const spare = 8

// want selects due jobs, in the form that the statements use. A job matches if its name, its
// priority, its mock flag and its due time match.
type want struct {
	scope    scope
	name     string   // with scope ofName
	names    []string // several names; if nil, see pattern
	pattern  *matched // if not nil: the pattern that names must match
	nothing  bool     // if set, no name can match
	priority *int64
	mock     bool
	by       any // microseconds; nil means the server's time
	limit    int
}

// want converts d to the form that the statements use: one name, all names, several names or a
// pattern, which it adds to the cache of patterns. Invalid names are left out. Without d.By, w.by
// is the store's time on SQLite, and nil on PostgreSQL (the server's time).
//
// w.nothing reports that no job can match: the list has no valid name, the pattern matches no
// text, or the priority is beyond MaxPriority. Returns ErrBadJob if limit is not positive. It
// reads nothing from the database.
func (t *tx) want(d jobstore.Due, limit int) (want, error) {
	w := want{mock: d.Mock, limit: limit}
	if limit <= 0 {
		return w, fmt.Errorf("%w: what is due is asked for with the limit %d", jobstore.ErrBadJob, limit)
	}
	if p, ok := d.Priority.Get(); ok {
		priority := int64(p)
		w.priority = &priority
		w.nothing = p < -jobstore.MaxPriority || p > jobstore.MaxPriority
	}
	switch {
	case !d.By.IsZero():
		w.by = d.By.UnixMicro()
	case t.s.lite:
		w.by = t.clock()
	}
	switch {
	case d.Pattern == "":
		w.setNames(d.Names)
	case strings.Trim(d.Pattern, "*") == "":
		w.scope = ofAll
	default:
		m := t.s.names.of(d.Pattern)
		if name, ok := m.pattern.Exact(); ok {
			w.setNames([]string{name})
		} else if w.pattern = m; m.pattern.Never() {
			w.nothing = true
		}
	}
	return w, nil
}

// setNames makes w select the valid ones of the names, each once. Without a valid name it sets
// w.nothing.
func (w *want) setNames(names []string) {
	good := make([]string, 0, len(names))
	for _, name := range names {
		if jobstore.CheckName(name) == nil {
			good = append(good, name)
		}
	}
	slices.Sort(good)
	good = slices.Compact(good)
	switch len(good) {
	case 0:
		w.nothing = true
	case 1:
		w.scope, w.name = ofName, good[0]
	default:
		w.names = good
	}
}

// direct reports whether one statement finds all wanted jobs in their order: w has one name or all
// names, and no mock jobs.
func (w *want) direct() bool { return w.names == nil && w.pattern == nil && !w.mock }

// matches reports whether w selects jobs with this name. It does not check the other conditions.
func (w *want) matches(name string) bool {
	switch {
	case w.pattern != nil:
		return w.pattern.pattern.Match(name)
	case w.names != nil:
		_, ok := slices.BinarySearch(w.names, name)
		return ok
	}
	return w.scope == ofAll || w.name == name
}

// statement returns the statement of kind k for the due jobs of w, and its arguments. For several
// names or a pattern, and for mock jobs, it selects all names: the caller filters the rows. mock
// selects mock jobs instead of others.
func (t *tx) statement(w *want, k kind, mock bool, limit int) (string, []any) {
	key := dueKey{k, w.scope, w.priority != nil, mock}
	if mock || w.names != nil || w.pattern != nil {
		key.by = ofAll
	}
	args := append(make([]any, 0, 5), limit, w.by)
	if w.priority != nil {
		args = append(args, *w.priority)
	}
	if key.by == ofName {
		args = append(args, w.name)
	}
	return t.s.text.due[key], args
}

// findDue returns at most limit due jobs that d selects, in the order in which they are claimed:
// priority, due time, id. It changes no job. In an update on PostgreSQL it locks them and skips
// jobs that others have locked. Returns ErrBadJob if limit is not positive, and errors of the
// database. Neither fails the transaction: the callers do.
func (t *tx) findDue(ctx context.Context, d jobstore.Due, limit int) ([]jobstore.Row, error) {
	w, err := t.want(d, limit)
	if err != nil || w.nothing {
		return nil, err
	}
	if w.direct() {
		k := read
		if !t.s.lite && !t.view {
			k = claim
		}
		query, args := t.statement(&w, k, false, limit)
		found, _, err := t.jobs(ctx, query, args...)
		return found, err
	}
	if t.s.lite || t.view {
		found, _, err := t.candidates(ctx, &w, limit, limit)
		if err != nil || len(found) == 0 {
			return nil, err
		}
		return t.byID(ctx, found)
	}
	var got []jobstore.Row
	// jobs that are already locked by this transaction are found again
	err = t.attempts(ctx, &w, func(ids []int64) (bool, error) {
		got, _, err = t.jobs(ctx, t.s.text.lockIDs, limit, w.by, ids)
		return len(got) >= limit, err
	})
	return got, err
}

// attempts reads the ids of candidates (due rows, which it does not lock) and calls do with them.
// do skips rows that other transactions have locked. So attempts repeats this with eight times as
// many candidates until do reports enough, or all due rows were candidates.
//
// Returns the first error of do or the database, which does not fail the transaction. PostgreSQL
// alone uses it.
func (t *tx) attempts(ctx context.Context, w *want, do func(ids []int64) (enough bool, err error)) error {
	need := w.limit
	for room := w.limit + spare; ; room *= 8 {
		found, all, err := t.candidates(ctx, w, need, room)
		if err != nil || len(found) == 0 {
			return err
		}
		ids := make([]int64, len(found))
		for i := range found {
			ids[i] = found[i].id
		}
		if enough, err := do(ids); err != nil || enough || all {
			return err
		}
		need = room
	}
}

// byID reads the jobs of the candidates and returns them in the order in which they are claimed.
// It locks nothing: only SQLite and a View use it. Returns errors of the database.
func (t *tx) byID(ctx context.Context, found []candidateRow) ([]jobstore.Row, error) {
	ids := make([]jobstore.ID, len(found))
	for i := range found {
		ids[i] = jobstore.ID(found[i].id)
	}
	b := builder{lite: t.s.lite}
	all, _, err := t.jobs(ctx, b.find(query{ids: ids}), b.args...)
	slices.SortFunc(all, func(a, b jobstore.Row) int { return inOrder(&a, &b) })
	return all, err
}

// Take claims at most limit due jobs and returns them as stored: RUNNING, with a new token, until
// the lease ends. A lease of 0 or below sets no end. It implements [jobstore.Taker].
//
// It stops before the first job with a retry rule, a parent or children, which needs other jobs to
// be read. rest, the second result, is then true. On PostgreSQL it skips locked jobs. With a
// lease, the watchers are called after the commit. Returns ErrBadJob if limit is not positive, and
// ErrUnsupported in a View. Each error, also one of the database, fails the transaction, and later
// calls return it.
func (t *tx) Take(ctx context.Context, d jobstore.Due, limit int, lease time.Duration) ([]jobstore.Row, bool, error) {
	if err := t.writes("take"); err != nil {
		return nil, false, err
	}
	w, err := t.want(d, limit)
	if err != nil || w.nothing {
		return nil, false, t.fail("take", err)
	}
	var taken []jobstore.Row
	var rest bool
	if t.s.lite {
		taken, rest, err = t.takeLite(ctx, d, limit, lease)
	} else {
		taken, rest, err = t.takePostgres(ctx, &w, lease)
	}
	if err == nil && lease > 0 {
		for i := range taken {
			t.noteWake(&taken[i])
		}
	}
	return taken, rest, t.fail("take", err)
}

// takePostgres is Take on PostgreSQL. It skips jobs that others have locked. For one name, or all
// names, it needs one statement. rest reports that it stopped before a job that is not plain (the
// constant plain). It raises the lower bound in the store's clock to the time of the claims.
// Returns errors of the database, which do not fail the transaction.
func (t *tx) takePostgres(ctx context.Context, w *want, lease time.Duration) (taken []jobstore.Row, rest bool, err error) {
	var until any
	if lease > 0 {
		until = max(lease.Microseconds(), 1)
	}
	empty := 0
	if w.direct() {
		query, args := t.statement(w, take, false, w.limit)
		taken, empty, err = t.jobs(ctx, query, append(args, until)...)
	} else {
		err = t.attempts(ctx, w, func(ids []int64) (bool, error) { // claimed jobs are not found again
			var more []jobstore.Row
			more, empty, err = t.jobs(ctx, t.s.text.takeIDs, w.limit-len(taken), w.by, ids, until)
			taken = append(taken, more...)
			return len(taken) >= w.limit || empty > 0, err
		})
	}
	for i := range taken {
		t.s.clock.note(taken[i].LastRun.UnixMicro())
	}
	return taken, empty > 0, err
}

// takeLite is Take on SQLite, where the transaction is the only writer. It reads the due jobs,
// stores the claim with one statement, and returns the jobs with the same changes. rest reports
// that it stopped before a job with a retry rule, a parent or children. Errors do not fail the
// transaction: Take does.
func (t *tx) takeLite(ctx context.Context, d jobstore.Due, limit int, lease time.Duration) (taken []jobstore.Row, rest bool, err error) {
	found, err := t.findDue(ctx, d, limit)
	if err != nil {
		return nil, false, err
	}
	if i := slices.IndexFunc(found, func(j jobstore.Row) bool { return j.RetryAfter != "" || j.Parent != 0 || j.HasChildren }); i >= 0 {
		found, rest = found[:i], true
	}
	now, due := moment(t.clock()), time.Time{}
	if lease > 0 {
		due = now.Add(max(lease.Truncate(time.Microsecond), time.Microsecond))
	}
	if err := t.mark(ctx, found, now, due); err != nil {
		return nil, false, err
	}
	for i := range found { // as the statement has changed them
		j := &found[i]
		if j.State == jobstore.Queued {
			j.Run, j.Scheduled = j.Run+1, j.NextRun
		}
		if j.State != jobstore.Running {
			j.Attempt++
		}
		j.State, j.Changed, j.LastRun, j.Due = jobstore.Running, now, now, due
		j.Token++
		t.note(j)
	}
	return found, rest, nil
}

// mark stores in the database that jobs are claimed at the time now, until the time due. It does
// not change found. Without jobs it does nothing. SQLite alone uses it. Returns the error of the
// database.
func (t *tx) mark(ctx context.Context, found []jobstore.Row, now, due time.Time) error {
	var err error
	switch len(found) {
	case 0:
	case 1: // a list takes longer
		_, err = t.c.Exec(ctx, t.s.text.mark, int64(found[0].ID), now.UnixMicro(), micros(due))
	default:
		ids := make([]jobstore.ID, len(found))
		for i := range found {
			ids[i] = found[i].ID
		}
		_, err = t.c.Exec(ctx, t.s.text.markMany, asJSON(ids), now.UnixMicro(), micros(due))
	}
	return err
}

// candidateRow holds the columns of a due job that define its order.
type candidateRow struct {
	id            int64
	name          string
	priority, due int64
}

// compare orders rows as they are claimed: by priority, due time and id.
func (a *candidateRow) compare(b *candidateRow) int {
	return cmp.Or(cmp.Compare(a.priority, b.priority), cmp.Compare(a.due, b.due), cmp.Compare(a.id, b.id))
}

// candidates returns the first due rows that w selects, in the order of claims, at most room. If w
// selects mock jobs, it merges these into the others. all reports that every due row was found;
// otherwise it returns at least need rows. It locks no row. Returns errors of the database.
func (t *tx) candidates(ctx context.Context, w *want, need, room int) (found []candidateRow, all bool, err error) {
	switch {
	case w.pattern != nil:
		found, all, err = t.ofPattern(ctx, w, need, room)
	case w.names != nil:
		found, all, err = t.ofNames(ctx, w, w.names, room)
	default:
		found, all, err = t.seek(ctx, w, false, room, room)
	}
	if err != nil || !w.mock {
		return found, all, err
	}
	mocks, allMocks, err := t.seek(ctx, w, true, 1<<31-1, room)
	if err != nil {
		return nil, false, err
	}
	if !all { // rows after the last found row may be missing, so later mocks are left out
		mocks = slices.DeleteFunc(mocks, func(m candidateRow) bool { return len(found) > 0 && m.compare(&found[len(found)-1]) > 0 })
	}
	found = append(found, mocks...)
	all = all && allMocks && len(found) <= room
	return firstOf(found, room), all, nil
}

// seek reads at most look due rows of any name or of w.name, in order, and returns the first room
// rows that w selects. all reports that it has found every row. It locks no row. Returns the error
// of the database, which does not fail the transaction.
func (t *tx) seek(ctx context.Context, w *want, mock bool, look, room int) (found []candidateRow, all bool, err error) {
	query, args := t.statement(w, seek, mock, look)
	found, read, err := t.pick(ctx, w, room, query, args...)
	return found, read < look && len(found) < room, err
}

// pick runs a query for candidates and returns the first rows, at most room, whose name w selects.
// It stops reading at the last of them. read is the number of rows that it has read by then,
// selected or not. Returns the error of the database, which does not fail the transaction.
func (t *tx) pick(ctx context.Context, w *want, room int, query string, args ...any) (found []candidateRow, read int, err error) {
	rows, err := t.c.Query(ctx, query, args...)
	if err != nil {
		return nil, 0, err
	}
	for len(found) < room && rows.Next() {
		var c candidateRow
		if err := rows.Scan(&c.id, &c.name, &c.priority, &c.due); err != nil {
			return nil, 0, errors.Join(err, rows.Close())
		}
		if read++; w.matches(c.name) {
			found = append(found, c)
		}
	}
	return found, read, errors.Join(rows.Err(), rows.Close())
}

// ofNames returns the first room due rows of the names, in order. all reports that it has found
// every row. It needs one statement on PostgreSQL, and one for each name on SQLite. It locks no
// row. Returns errors of the database.
func (t *tx) ofNames(ctx context.Context, w *want, names []string, room int) (found []candidateRow, all bool, err error) {
	if !t.s.lite {
		query, args := t.s.text.many, []any{room, w.by, names}
		if w.priority != nil {
			query, args = t.s.text.manyOf, append(args, *w.priority)
		}
		found, _, err = t.pick(ctx, w, room, query, args...)
		return found, len(found) < room, err
	}
	one := *w
	one.names, one.pattern, one.scope = nil, nil, ofName
	for _, name := range names {
		one.name = name
		rows, _, err := t.seek(ctx, &one, false, room, room)
		if err != nil {
			return nil, false, err
		}
		found = append(found, rows...)
		if len(found) > 4*room+64 {
			found = firstOf(found, room)
		}
	}
	all = len(found) < room
	return firstOf(found, room), all, nil
}

// firstOf sorts found in the order of claims and returns its first room rows. It changes found.
func firstOf(found []candidateRow, room int) []candidateRow {
	slices.SortFunc(found, func(a, b candidateRow) int { return a.compare(&b) })
	return found[:min(len(found), room)]
}

// The largest numbers of due rows that a walk reads, from the first row on.
const (
	shortWalk = 48
	longWalk  = 2048
	// fewNames is the number of names up to which each name is looked up without a long walk.
	fewNames = 24
)

// ofPattern returns the first due rows whose name matches the pattern of w, at most room, in
// order. all reports that it has found every row.
//
// It first reads a few due rows, where a common pattern is found soon. If these contain fewer than
// need matches, it reads the names of jobs. Many matching names are tried with a longer walk over
// the due rows; otherwise, or if that fails, it looks up each name. It locks no row. Returns
// errors of the database, which do not fail the transaction.
func (t *tx) ofPattern(ctx context.Context, w *want, need, room int) (found []candidateRow, all bool, err error) {
	m := w.pattern
	if found, enough, all, err := t.walk(ctx, w, &m.short, shortWalk+need, need, room); err != nil || enough {
		return found, all, err
	}
	names, of, err := t.matching(ctx, m)
	if err != nil || len(names) == 0 {
		return nil, err == nil, err
	}
	if len(names) > fewNames && len(names) > of/len(names) {
		// With len(names) matches among "of" names, one row in of/len(names) should match. After eight
		// times as many rows without success, matches are rare.
		look := min(need*(of/len(names)+1)*8, longWalk)
		if found, enough, all, err := t.walk(ctx, w, &m.long, look, need, room); err != nil || enough {
			return found, all, err
		}
	}
	return t.ofNames(ctx, w, names, room)
}

// walk reads the first due rows, at most look, and returns those that w selects. enough reports
// that they are at least need rows, or all of them. It stores that in k: after a failure only
// every 16th walk of k reads, and the others return false. Returns the error of seek.
func (t *tx) walk(ctx context.Context, w *want, k *walk, look, need, room int) (found []candidateRow, enough, all bool, err error) {
	if !t.s.names.worth(k) {
		return nil, false, false, nil
	}
	found, all, err = t.seek(ctx, w, false, look, room)
	enough = all || len(found) >= need
	t.s.names.walked(k, enough)
	return found, enough, all, err
}

// matching returns the names of jobs that match m, and of, the number of all names. It reads the
// names that are new since the last read. Returns the error of readNames.
func (t *tx) matching(ctx context.Context, m *matched) (names []string, of int, err error) {
	for {
		l, err := t.readNames(ctx)
		if err != nil {
			return nil, 0, err
		}
		if names, of = t.s.names.match(m, l); of >= 0 {
			return names, of, nil
		}
	}
}

// asJSON returns the list as JSON, for an argument of a statement.
func asJSON[T any](list []T) string {
	out, _ := json.Marshal(list) // texts and numbers can always be encoded
	return string(out)
}

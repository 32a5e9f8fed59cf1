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

// spare is how many more candidates are read than are wanted: others may have locked the first ones.
const spare = 8

// want is what is asked for of what is due.
type want struct {
	scope    scope
	name     string   // of ofName
	names    []string // of several; nil: see pattern
	pattern  *matched // of a pattern that is looked for; nil: there is none
	nothing  bool     // no name can match
	priority *int64
	mock     bool
	by       any // microseconds; nil: the server's time
	limit    int
}

// want makes of a question what the statements know: one name, all of them, several, or a pattern.
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

// direct reports whether one statement finds all that is wanted, in order.
func (w *want) direct() bool { return w.names == nil && w.pattern == nil && !w.mock }

// matches reports whether a name is wanted.
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

// statement is one about one name or all, and its arguments.
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

// findDue is Find of what is due.
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
	err = t.attempts(ctx, &w, func(ids []int64) (bool, error) { // those that are locked already are found again
		got, _, err = t.jobs(ctx, t.s.text.lockIDs, limit, w.by, ids)
		return len(got) >= limit, err
	})
	return got, err
}

// attempts finds candidates and has do lock them, on PostgreSQL; more of them for as long as do has not enough, because others had some.
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

// byID reads the jobs of candidates, in the order in which they are handed out.
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

// Take implements [jobstore.Taker].
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
			t.tell(&taken[i])
		}
	}
	return taken, rest, t.fail("take", err)
}

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
		err = t.attempts(ctx, w, func(ids []int64) (bool, error) { // those that are taken are not found again
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

// takeLite takes what it finds: nobody else writes meanwhile.
func (t *tx) takeLite(ctx context.Context, d jobstore.Due, limit int, lease time.Duration) (taken []jobstore.Row, rest bool, err error) {
	found, err := t.findDue(ctx, d, limit)
	if err != nil {
		return nil, false, err
	}
	now := moment(t.clock())
	for i := range found {
		j := &found[i]
		if j.RetryAfter != "" || j.Parent != 0 || j.HasChildren {
			return found[:i], true, nil
		}
		if j.State == jobstore.Queued {
			j.Run, j.Scheduled = j.Run+1, j.NextRun
		}
		if j.State != jobstore.Running {
			j.Attempt++
		}
		j.State, j.Changed, j.LastRun, j.Due = jobstore.Running, now, now, time.Time{}
		j.Token++
		if lease > 0 {
			j.Due = now.Add(max(lease.Truncate(time.Microsecond), time.Microsecond))
		}
		_, err := t.c.Exec(ctx, t.s.text.mark, int64(j.ID), now.UnixMicro(), micros(j.Due), j.Run, micros(j.Scheduled), j.Attempt)
		if err != nil {
			return nil, false, err
		}
		t.note(j)
	}
	return found, false, nil
}

// candidateRow is a row that is due.
type candidateRow struct {
	id            int64
	name          string
	priority, due int64
}

func (a *candidateRow) compare(b *candidateRow) int {
	return cmp.Or(cmp.Compare(a.priority, b.priority), cmp.Compare(a.due, b.due), cmp.Compare(a.id, b.id))
}

// candidates finds the first rows that are wanted, need of them if there are so many and at most room, and locks none. all: there are no
// others.
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
	if !all { // what comes after the last one may not be known
		mocks = slices.DeleteFunc(mocks, func(m candidateRow) bool { return len(found) > 0 && m.compare(&found[len(found)-1]) > 0 })
	}
	found = append(found, mocks...)
	all = all && allMocks && len(found) <= room
	return firstOf(found, room), all, nil
}

// seek reads rows in order, at most look, and keeps those that are wanted until there are room. all: there are no others.
func (t *tx) seek(ctx context.Context, w *want, mock bool, look, room int) (found []candidateRow, all bool, err error) {
	query, args := t.statement(w, seek, mock, look)
	found, read, err := t.pick(ctx, w, room, query, args...)
	return found, read < look && len(found) < room, err
}

// pick reads candidates and keeps those that are wanted until there are room. read is how many rows it has read.
func (t *tx) pick(ctx context.Context, w *want, room int, query string, args ...any) (found []candidateRow, read int, err error) {
	rows, err := t.c.Query(ctx, query, args...)
	if err != nil {
		return nil, 0, err
	}
	for len(found) < room && rows.Next() {
		var c candidateRow
		if err := rows.Scan(&c.id, &c.name, &c.priority, &c.due); err != nil {
			return nil, 0, err
		}
		if read++; w.matches(c.name) {
			found = append(found, c)
		}
	}
	return found, read, errors.Join(rows.Err(), rows.Close())
}

// ofNames reads the first rows of several names.
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

func firstOf(found []candidateRow, room int) []candidateRow {
	slices.SortFunc(found, func(a, b candidateRow) int { return a.compare(&b) })
	return found[:min(len(found), room)]
}

// Walks over what is due, from its beginning.
const (
	shortWalk = 48
	longWalk  = 2048
	// fewNames are looked up each, rather than for a walk.
	fewNames = 24
)

// ofPattern looks at what is due from its beginning, where a common pattern is found soon. If that does not do, the names
// that match tell how far it is worth to walk; if that does not do either, each of them is looked up.
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
		// Of "of" names so many match that a match is to be expected after as many rows. When there is none in a walk eight times as
		// long, they are rare among what is due.
		look := min(need*(of/len(names)+1)*8, longWalk)
		if found, enough, all, err := t.walk(ctx, w, &m.long, look, need, room); err != nil || enough {
			return found, all, err
		}
	}
	return t.ofNames(ctx, w, names, room)
}

// walk looks at the first rows that are due, unless the last such walk was in vain.
func (t *tx) walk(ctx context.Context, w *want, k *walk, look, need, room int) (found []candidateRow, enough, all bool, err error) {
	if !t.s.names.worth(k) {
		return nil, false, false, nil
	}
	found, all, err = t.seek(ctx, w, false, look, room)
	enough = all || len(found) >= need
	t.s.names.walked(k, enough)
	return found, enough, all, err
}

// matching returns the names that a pattern matches, and how many names there are.
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

// asJSON is a list for a statement.
func asJSON[T any](list []T) string {
	out, _ := json.Marshal(list) // texts and numbers always have a form
	return string(out)
}

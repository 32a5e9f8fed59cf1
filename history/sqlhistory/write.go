package sqlhistory

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/swarmiji/swarmiji/history"
	"github.com/swarmiji/swarmiji/internal/sqlconn"
)

// Record implements [history.Store]: it merges b into the stored facts in one transaction and
// returns the latest Batch.Now of earlier batches. The transaction locks the namespace: recorders
// write one after the other, so that an entry counts once. It waits for the database. Returns
// ErrMalformed for facts without a valid id, and the errors of update.
func (s *Store) Record(ctx context.Context, b *history.Batch) (before time.Time, err error) {
	if err := b.Check(); err != nil {
		return time.Time{}, err
	}
	err = s.update(ctx, "record", func(ctx context.Context, tx *sqlconn.Tx) error {
		ns, _, seen, err := s.lock(ctx, tx)
		if err != nil {
			return err
		}
		before = time.Time{}
		if seen > 0 {
			before = time.UnixMilli(seen).UTC()
		}
		w := writer{tx: tx, ns: ns}
		if err := w.merge(ctx, b.Merged()); err != nil {
			return err
		}
		if b.Gap != nil {
			if err := w.gap(ctx, b.Gap); err != nil {
				return err
			}
		}
		now := int64(0)
		if !b.Now.IsZero() {
			now = b.Now.UnixMilli()
		}
		_, err = tx.Exec(ctx, "UPDATE swarmiji_history_space SET records = records + $2, seen = $3 WHERE ns = $1", ns, w.inserted, max(seen, now))
		return err
	})
	return before, err
}

// lock locks the row of the namespace until the transaction ends, and inserts it if it is missing.
// It returns the number of the namespace, its number of records, and the latest Batch.Now in
// milliseconds, 0 before the first. It waits for other transactions and returns the errors of the
// database.
func (s *Store) lock(ctx context.Context, tx *sqlconn.Tx) (ns, records, seen int64, err error) {
	text := "SELECT ns, records, seen FROM swarmiji_history_space WHERE namespace = $1"
	if tx.Dialect() == sqlconn.Postgres {
		text += " FOR UPDATE"
	}
	err = tx.Row(ctx, text, s.cfg.Namespace).Scan(&ns, &records, &seen)
	if !errors.Is(err, sqlconn.ErrNoRows) {
		return ns, records, seen, err
	}
	if _, err = tx.Exec(ctx, "INSERT INTO swarmiji_history_space (namespace, records, seen) VALUES ($1, 0, 0) ON CONFLICT DO NOTHING", s.cfg.Namespace); err == nil {
		err = tx.Row(ctx, text, s.cfg.Namespace).Scan(&ns, &records, &seen)
	}
	return ns, records, seen, err
}

// writer writes one batch in a transaction that has locked the namespace. Its methods wait for the
// database and return its errors.
type writer struct {
	tx       *sqlconn.Tx
	ns       int64
	inserted int64 // new records
}

// The kinds of labels.
const (
	labelName int64 = iota + 1
	labelQueue
	labelClass
	labelHeader
)

// label is a text with a number in swarmiji_history_label: a name, a queue, a class or the key of a
// header. Records store the number.
type label struct {
	kind int64
	text string
}

// change is a record that the batch makes or changes.
type change struct {
	facts  *history.Facts
	record history.Record
	stored bool     // the task has a row
	gone   []string // headers that the stored record has and this one has not
}

// merge merges facts, one element for each task, into the stored ones. It writes the records that
// this changes and adds their new entries to the counts. It counts new records in w.inserted.
func (w *writer) merge(ctx context.Context, all []*history.Facts) error {
	if len(all) == 0 {
		return nil
	}
	stored, err := w.read(ctx, all)
	if err != nil {
		return err
	}
	changes := make([]change, 0, len(all))
	var buckets []history.Bucket
	for _, f := range all {
		old, ok := stored[string(f.ID)]
		merged := f
		if ok {
			merged = new(history.Facts)
			*merged = *old // merging leaves the entries of old unchanged
			if !merged.Merge(f) {
				continue
			}
		} else {
			w.inserted++
		}
		c := change{facts: merged, record: merged.Summary(), stored: ok}
		if ok {
			c.gone = goneHeaders(old, &c.record)
		}
		changes = append(changes, c)
		buckets = append(buckets, merged.Buckets(old)...)
	}
	if len(changes) == 0 {
		return nil
	}
	ids, err := w.labels(ctx, changes)
	if err != nil {
		return err
	}
	if err := w.write(ctx, changes, ids); err != nil {
		return err
	}
	return w.count(ctx, buckets, ids)
}

// goneHeaders returns the keys of the headers that the stored facts have and r has not. Headers
// change if another event of the task, for example in a later life, has others.
func goneHeaders(stored *history.Facts, r *history.Record) []string {
	var gone []string
	for k := range stored.Summary().Headers {
		if _, ok := r.Headers[k]; !ok {
			gone = append(gone, k)
		}
	}
	return gone
}

// read returns the stored facts of the tasks in all, by task id. It leaves out tasks without a row.
// A row that cannot be read counts as empty facts, so that it is replaced.
func (w *writer) read(ctx context.Context, all []*history.Facts) (map[string]*history.Facts, error) {
	ids := make([]string, len(all))
	for i, f := range all {
		ids[i] = string(f.ID)
	}
	in, list := within(w.tx.Dialect(), 2, ids)
	rows, err := w.tx.Query(ctx, "SELECT id, facts FROM swarmiji_history WHERE ns = $1 AND id "+in, w.ns, list)
	if err != nil {
		return nil, err
	}
	stored := make(map[string]*history.Facts)
	for rows.Next() {
		var id string
		var data []byte
		if err := rows.Scan(&id, &data); err != nil {
			return nil, errors.Join(err, rows.Close())
		}
		var f history.Facts
		if f.UnmarshalJSON(data) != nil || string(f.ID) != id {
			f = history.Facts{}
		}
		stored[id] = &f
	}
	return stored, errors.Join(rows.Err(), rows.Close())
}

// labels returns the numbers of all labels of the changes, and inserts missing labels. A kind has
// at most history.MaxLabels labels; a further text gets the number of history.Other.
func (w *writer) labels(ctx context.Context, changes []change) (map[label]int64, error) {
	need := make(map[label]bool)
	for i := range changes {
		r := &changes[i].record
		need[label{labelName, r.Name}], need[label{labelQueue, r.Queue}], need[label{labelClass, r.Class}] = true, true, true
		for k := range r.Headers {
			need[label{labelHeader, k}] = true
		}
		for _, k := range changes[i].gone {
			need[label{labelHeader, k}] = true
		}
	}
	texts := []string{history.Other}
	for l := range need {
		texts = append(texts, l.text)
	}
	in, list := within(w.tx.Dialect(), 2, texts)
	have, err := readLabels(ctx, w.tx, in, w.ns, list)
	if err != nil {
		return nil, err
	}
	counts := map[int64]int{}
	for l := range need {
		if l.text == "" || have[l] != 0 {
			continue
		}
		if _, known := counts[l.kind]; !known {
			var n int
			if err := w.tx.Row(ctx, "SELECT count(*) FROM swarmiji_history_label WHERE ns = $1 AND kind = $2", w.ns, l.kind).Scan(&n); err != nil {
				return nil, err
			}
			counts[l.kind] = n
		}
		as := l
		if counts[l.kind] >= history.MaxLabels {
			as.text = history.Other
		}
		if have[as] == 0 {
			var id int64
			if err := w.tx.Row(ctx, "INSERT INTO swarmiji_history_label (ns, kind, text) VALUES ($1, $2, $3) RETURNING id", w.ns, as.kind, as.text).Scan(&id); err != nil {
				return nil, err
			}
			have[as] = id
			counts[l.kind]++
		}
		have[l] = have[as]
	}
	return have, nil
}

// readLabels returns the numbers of the stored labels whose text is in a list. in and list are the
// condition and the argument from within.
func readLabels(ctx context.Context, tx *sqlconn.Tx, in string, ns int64, list any) (map[label]int64, error) {
	rows, err := tx.Query(ctx, "SELECT id, kind, text FROM swarmiji_history_label WHERE ns = $1 AND text "+in, ns, list)
	if err != nil {
		return nil, err
	}
	all := make(map[label]int64)
	for rows.Next() {
		var id int64
		var l label
		if err := rows.Scan(&id, &l.kind, &l.text); err != nil {
			return nil, err
		}
		all[l] = id
	}
	return all, errors.Join(rows.Err(), rows.Close())
}

// state returns the number by which the table stores a state. A failed task with a dead letter has
// a number of its own.
func state(s history.State, deadLetter bool) int64 {
	if s == history.Failed && deadLetter {
		return stateDead
	}
	return int64(slices.Index(history.States(), s) + 1)
}

// stateDead is the number of failed tasks with a dead letter.
const stateDead = 10

// write inserts or updates the rows of the changes and of their headers, and deletes the headers in
// gone. ids holds the numbers of their labels.
func (w *writer) write(ctx context.Context, changes []change, ids map[label]int64) error {
	var fresh, known, headers [][]any
	for i := range changes {
		c := &changes[i]
		r := &c.record
		data, err := c.facts.MarshalJSON()
		if err != nil {
			return err
		}
		changed := r.Changed.UnixMilli()
		row := []any{
			w.ns, string(r.ID), state(r.State, r.DeadLetter), changed, ids[label{labelName, r.Name}], ids[label{labelQueue, r.Queue}],
			ids[label{labelClass, r.Class}], r.Node, string(r.Parent), string(r.Root), string(r.Group), int64(r.Wait), int64(r.Run), int64(r.Attempts),
			r.Error, data,
		}
		if c.stored {
			known = append(known, row)
		} else {
			fresh = append(fresh, row)
		}
		seen := make(map[int64]bool) // two headers may count as history.Other
		for _, k := range sortedKeys(r.Headers) {
			if n := ids[label{labelHeader, k}]; !seen[n] {
				seen[n] = true
				headers = append(headers, []any{w.ns, string(r.ID), n, r.Headers[k], changed})
			}
		}
	}
	const insert = "INSERT INTO swarmiji_history (ns, id, state, changed, name, queue, class, node, parent, root, grp, wait, run, attempts, error, facts)"
	// The namespace is locked, so a new row meets no other. An insert that may meet one costs more.
	if err := w.bulk(ctx, insert, "", "", fresh); err != nil {
		return err
	}
	update := "ON CONFLICT (ns, id) DO UPDATE SET " + excluded("state", "changed", "name", "queue", "class", "node", "parent", "root", "grp", "wait", "run", "attempts", "error", "facts")
	if err := w.bulk(ctx, insert, "", update, known); err != nil {
		return err
	}
	for i := range changes {
		for _, k := range changes[i].gone {
			_, err := w.tx.Exec(ctx, "DELETE FROM swarmiji_history_header WHERE label = $1 AND seq = (SELECT seq FROM swarmiji_history WHERE ns = $2 AND id = $3)",
				ids[label{labelHeader, k}], w.ns, string(changes[i].record.ID))
			if err != nil {
				return err
			}
		}
	}
	return w.bulk(ctx, "INSERT INTO swarmiji_history_header (seq, label, value, changed)",
		"SELECT h.seq, v.c3, v.c4, v.c5 FROM %s JOIN swarmiji_history AS h ON h.ns = v.c1 AND h.id = v.c2 WHERE true",
		"ON CONFLICT (seq, label) DO UPDATE SET "+excluded("value", "changed"), headers)
}

// sortedKeys returns the keys of m in ascending order.
func sortedKeys(m map[string]string) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// excluded returns the assignments after DO UPDATE SET: each column gets the value of the row that
// was not inserted because it exists. It changes the slice columns.
func excluded(columns ...string) string {
	for i, c := range columns {
		columns[i] = c + " = excluded." + c
	}
	return strings.Join(columns, ", ")
}

// bulk inserts rows of int64, string and []byte: on SQLite one after the other, on PostgreSQL in
// one statement. insert is the beginning of the statement with table and columns, and conflict its
// end. source is a query of the rows to insert, in which %s stands for the given rows, whose
// columns are v.c1, v.c2 and so on. "": the given rows. Without rows it does nothing.
func (w *writer) bulk(ctx context.Context, insert, source, conflict string, rows [][]any) error {
	if len(rows) == 0 {
		return nil
	}
	n := len(rows[0])
	columns, params := make([]string, n), make([]string, n)
	for i := range n {
		columns[i], params[i] = fmt.Sprintf("c%d", i+1), fmt.Sprintf("$%d", i+1)
	}
	if w.tx.Dialect() != sqlconn.Postgres {
		// VALUES, since SQLite prepares each INSERT of a query to be taken back row by row
		values := "VALUES (" + strings.Join(params, ", ") + ")"
		if source != "" {
			for i := range n {
				params[i] += " AS " + columns[i]
			}
			values = fmt.Sprintf(source, "(SELECT "+strings.Join(params, ", ")+") AS v")
		}
		text := insert + " " + values + " " + conflict
		for _, row := range rows {
			if _, err := w.tx.Exec(ctx, text, row...); err != nil {
				return err
			}
		}
		return nil
	}
	if source == "" {
		source = "SELECT * FROM %s WHERE true"
	}
	args := make([]any, n)
	for i, v := range rows[0] {
		switch v.(type) {
		case int64:
			args[i], params[i] = column[int64](rows, i), params[i]+"::bigint[]"
		case string:
			args[i], params[i] = column[string](rows, i), params[i]+"::text[]"
		default:
			args[i], params[i] = column[[]byte](rows, i), params[i]+"::bytea[]"
		}
	}
	text := insert + " " + fmt.Sprintf(source, "unnest("+strings.Join(params, ", ")+") AS v ("+strings.Join(columns, ", ")+")") + " " + conflict
	_, err := w.tx.Exec(ctx, text, args...)
	return err
}

// column returns the values of column i of the rows, all of type T.
func column[T any](rows [][]any, i int) []T {
	values := make([]T, len(rows))
	for n, row := range rows {
		values[n] = row[i].(T)
	}
	return values
}

// count adds buckets to the stored counts of their minute, queue, name and kind. ids holds the
// numbers of the labels.
func (w *writer) count(ctx context.Context, buckets []history.Bucket, ids map[label]int64) error {
	type key struct {
		minute, queue, name int64
		kind                history.Kind
	}
	sums := make(map[key]*history.Bucket)
	var order []key
	for i := range buckets {
		b := &buckets[i]
		k := key{b.Minute.UnixMilli(), ids[label{labelQueue, b.Queue}], ids[label{labelName, b.Name}], b.Kind}
		if sums[k] == nil {
			sums[k] = &history.Bucket{}
			order = append(order, k)
		}
		sums[k].Add(b)
	}
	rows := make([][]any, len(order))
	for i, k := range order {
		rows[i] = []any{w.ns, k.minute, k.queue, k.name, string(k.kind), sums[k].N, int64(sums[k].Wait), int64(sums[k].Run)}
	}
	// as history.Bucket.Add; SQLite adds larger numbers as real ones, and cuts these
	sum := "CAST(swarmiji_history_minute.%[1]s + excluded.%[1]s AS integer)"
	if w.tx.Dialect() == sqlconn.Postgres {
		sum = "LEAST(swarmiji_history_minute.%[1]s::numeric + excluded.%[1]s, 9223372036854775807)::bigint"
	}
	return w.bulk(ctx, "INSERT INTO swarmiji_history_minute (ns, minute, queue, name, kind, n, wait, run)", "",
		"ON CONFLICT (ns, minute, queue, name, kind) DO UPDATE SET n = swarmiji_history_minute.n + excluded.n, wait = "+
			fmt.Sprintf(sum, "wait")+", run = "+fmt.Sprintf(sum, "run"), rows)
}

// gap stores g as a new row, or joins it to the newest stored gap.
func (w *writer) gap(ctx context.Context, g *history.Gap) error {
	var since, until, dropped int64
	err := w.tx.Row(ctx, "SELECT since, until, dropped FROM swarmiji_history_gap WHERE ns = $1 ORDER BY since DESC LIMIT 1", w.ns).Scan(&since, &until, &dropped)
	last := history.Gap{Since: time.UnixMilli(since), Before: time.UnixMilli(until), Dropped: dropped}
	whole := *g
	switch {
	case err == nil && last.Joins(*g):
		whole = last.Join(*g)
	case err != nil && !errors.Is(err, sqlconn.ErrNoRows):
		return err
	}
	_, err = w.tx.Exec(ctx, `INSERT INTO swarmiji_history_gap (ns, since, until, dropped) VALUES ($1, $2, $3, $4)
		ON CONFLICT (ns, since) DO UPDATE SET `+excluded("until", "dropped"), w.ns, whole.Since.UnixMilli(), whole.Before.UnixMilli(), whole.Dropped)
	return err
}

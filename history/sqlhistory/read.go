package sqlhistory

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/swarmiji/swarmiji/history"
	"github.com/swarmiji/swarmiji/internal/sqlconn"
)

// Page implements [history.Store]: it returns the next records that match q, the newest change
// first, and the newest gaps. It waits for the database. Returns ErrQuery for an invalid query or
// limit, ErrMalformed for a wrong cursor or a record that cannot be read, and the errors of view.
func (s *Store) Page(ctx context.Context, q history.Query, o history.PageOptions) (history.Page, error) {
	q = q.At(time.Now())
	if err := q.Check(); err != nil {
		return history.Page{}, err
	}
	limit, begin, err := o.Begin(q)
	if err != nil {
		return history.Page{}, err
	}
	var p history.Page
	empty := history.Page{Records: []history.Record{}, Complete: true, Query: q}
	err = s.view(ctx, "page", func(ctx context.Context, tx *sqlconn.Tx, ns int64) error {
		p = empty
		plan, err := newPlan(ctx, tx, ns, q, begin)
		if err != nil {
			return err
		}
		if err := plan.page(ctx, tx, limit, &p); err != nil {
			return err
		}
		p.Gaps, err = gaps(ctx, tx, ns, q)
		return err
	})
	if p.Records == nil { // a namespace without history
		p = empty
	}
	return p, err
}

// page adds up to limit records to into, and sets Next and Complete. It reads in steps; each
// examines more entries than the last, up to MaxExamined together. It waits for the database and
// returns the errors of step.
func (p *plan) page(ctx context.Context, tx *sqlconn.Tx, limit int, into *history.Page) error {
	at := p.begin
	left := history.MaxExamined
	for n := limit + 1; ; n *= 8 {
		if most := left / len(p.driver.arms); n > most {
			n = most
		}
		if n == 0 {
			into.Complete, into.Next = false, at.String()
			return nil
		}
		found, end, examined, err := p.step(ctx, tx, at, n, limit+1-len(into.Records))
		if err != nil {
			return err
		}
		for i := range found {
			if len(into.Records) == limit {
				into.Next = at.String() // of the last record
				return nil
			}
			into.Records, at = append(into.Records, found[i].record), found[i].at
		}
		if examined < n {
			return nil
		}
		at, left = end, left-n*len(p.driver.arms)
	}
}

// entry is a record with its position in the list.
type entry struct {
	at     history.Cursor
	record history.Record
}

// step examines up to n entries after at, and returns up to limit records that match, without
// timelines. It also returns the number of examined entries and the position of the last one. It
// waits for the database. Returns its errors, and ErrMalformed if the facts of a record cannot be
// read.
func (p *plan) step(ctx context.Context, tx *sqlconn.Tx, at history.Cursor, n, limit int) (found []entry, end history.Cursor, examined int, err error) {
	text, args := p.pageText(at, n, limit)
	rows, err := tx.Query(ctx, text, args...)
	if err != nil {
		return nil, end, 0, err
	}
	for rows.Next() {
		var last, seq, changed int64
		var count int
		var data []byte
		if err := rows.Scan(&last, &seq, &changed, &count, &data); err != nil {
			return nil, end, 0, errors.Join(err, rows.Close())
		}
		c := history.Cursor{Changed: time.UnixMilli(changed).UTC(), Number: seq}
		if last == 1 {
			end, examined = c, count
			continue
		}
		var f history.Facts
		if err := f.UnmarshalJSON(data); err != nil {
			return nil, end, 0, errors.Join(err, rows.Close())
		}
		found = append(found, entry{c, f.Summary()})
	}
	return found, end, examined, errors.Join(rows.Err(), rows.Close())
}

// gaps returns the newest gaps that overlap the time of q, the newest first, up to MaxGaps. It
// waits for the database and returns its errors.
func gaps(ctx context.Context, tx *sqlconn.Tx, ns int64, q history.Query) ([]history.Gap, error) {
	since, before := int64(0), int64(never)
	if s, b := q.Span(); true {
		if !s.IsZero() {
			since = s.UnixMilli()
		}
		if !b.IsZero() {
			before = b.UnixMilli()
		}
	}
	rows, err := tx.Query(ctx, `SELECT since, until, dropped FROM swarmiji_history_gap WHERE ns = $1 AND until >= $2 AND since < $3
		ORDER BY since DESC LIMIT $4`, ns, since, before, history.MaxGaps)
	if err != nil {
		return nil, err
	}
	var all []history.Gap
	for rows.Next() {
		var since, until int64
		var g history.Gap
		if err := rows.Scan(&since, &until, &g.Dropped); err != nil {
			return nil, err
		}
		g.Since, g.Before = time.UnixMilli(since).UTC(), time.UnixMilli(until).UTC()
		all = append(all, g)
	}
	return all, errors.Join(rows.Err(), rows.Close())
}

// Count implements [history.Store]: it counts the records that match q, up to MaxCount or until
// MaxExamined entries were examined. It waits for the database. Returns ErrQuery for an invalid
// query, and the errors of view.
func (s *Store) Count(ctx context.Context, q history.Query) (t history.Total, err error) {
	q = q.At(time.Now())
	if err := q.Check(); err != nil {
		return t, err
	}
	_, begin, err := history.PageOptions{}.Begin(q)
	if err != nil {
		return t, err
	}
	err = s.view(ctx, "count", func(ctx context.Context, tx *sqlconn.Tx, ns int64) error {
		plan, err := newPlan(ctx, tx, ns, q, begin)
		if err != nil {
			return err
		}
		n := history.MaxExamined / len(plan.driver.arms)
		if plan.residual == nil {
			n = min(n, history.MaxCount+1)
		}
		text, args := plan.countText(n)
		var examined int
		if err := tx.Row(ctx, text, args...).Scan(&examined, &t.N); err != nil {
			return err
		}
		t.AtLeast = t.N > history.MaxCount || examined == n
		t.N = min(t.N, history.MaxCount)
		return nil
	})
	return t, err
}

// Counts implements [history.Store]: it reads the counts that q selects, added up to the parts that
// q asks for. It waits for the database. Returns ErrQuery for more than MaxBuckets rows, and the
// errors of view.
func (s *Store) Counts(ctx context.Context, q history.CountQuery) ([]history.Bucket, error) {
	since, before := int64(0), int64(never)
	if !q.Since.IsZero() {
		since = q.Since.Truncate(time.Minute).UnixMilli()
	}
	if !q.Before.IsZero() {
		before = q.Before.UnixMilli()
	}
	column := func(wanted bool, name, none string) string {
		if wanted {
			return name
		}
		return none
	}
	minute, queue, name := column(q.PerMinute, "m.minute", "0"), column(q.PerQueue, "COALESCE(q.text, '')", "''"), column(q.PerName, "COALESCE(t.text, '')", "''")
	sum := "CAST(total(m.%s) AS bigint)" // sum fails for a larger number, and the cast cuts it
	if s.conn.Dialect() == sqlconn.Postgres {
		sum = "CAST(LEAST(sum(m.%s), 9223372036854775807) AS bigint)"
	}
	all := []history.Bucket{}
	err := s.view(ctx, "counts", func(ctx context.Context, tx *sqlconn.Tx, ns int64) error {
		all = []history.Bucket{}
		cond, args := "", []any{ns, since, before, history.MaxBuckets + 1}
		for _, one := range []struct {
			label
			column string
		}{{label{labelQueue, q.Queue}, "queue"}, {label{labelName, q.Name}, "name"}} {
			if one.text == "" {
				continue
			}
			var id int64
			err := tx.Row(ctx, "SELECT id FROM swarmiji_history_label WHERE ns = $1 AND kind = $2 AND text = $3", ns, one.kind, one.text).Scan(&id)
			if errors.Is(err, sqlconn.ErrNoRows) {
				return nil
			}
			if err != nil {
				return err
			}
			args = append(args, id)
			cond += fmt.Sprintf(" AND m.%s = $%d", one.column, len(args))
		}
		text := fmt.Sprintf(`SELECT %s, %s, %s, m.kind, CAST(sum(m.n) AS bigint), %s, %s
			FROM swarmiji_history_minute AS m
			LEFT JOIN swarmiji_history_label AS q ON q.id = m.queue LEFT JOIN swarmiji_history_label AS t ON t.id = m.name
			WHERE m.ns = $1 AND m.minute >= $2 AND m.minute < $3%s
			GROUP BY 1, 2, 3, 4 ORDER BY 1, 2, 3, 4 LIMIT $4`, minute, queue, name, fmt.Sprintf(sum, "wait"), fmt.Sprintf(sum, "run"), cond)
		rows, err := tx.Query(ctx, text, args...)
		if err != nil {
			return err
		}
		for rows.Next() {
			var b history.Bucket
			var minute, wait, run int64
			var kind string
			if err := rows.Scan(&minute, &b.Queue, &b.Name, &kind, &b.N, &wait, &run); err != nil {
				return err
			}
			b.Kind, b.Wait, b.Run = history.Kind(kind), time.Duration(wait), time.Duration(run)
			if minute != 0 {
				b.Minute = time.UnixMilli(minute).UTC()
			}
			all = append(all, b)
		}
		return errors.Join(rows.Err(), rows.Close())
	})
	if len(all) > history.MaxBuckets {
		return nil, history.TooMany()
	}
	return all, err
}

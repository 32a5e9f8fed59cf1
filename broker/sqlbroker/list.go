package sqlbroker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/messagecode"
	"github.com/swarmiji/swarmiji/internal/sqlconn"
)

// Queues implements [broker.QueueLister]. Queues are never removed. It waits for the database and
// returns its errors, ErrClosed after Close.
func (b *Broker) Queues(ctx context.Context) (names []string, err error) {
	b.mu.Lock()
	closed := b.closed
	b.mu.Unlock()
	if closed {
		return nil, fmt.Errorf("sql queues: %w", errClosed)
	}
	err = b.view(ctx, func(ctx context.Context, tx *sqlconn.Tx) error {
		names = nil
		rows, err := tx.Query(ctx, b.text.queues, b.cfg.Namespace)
		if err != nil {
			return err
		}
		for rows.Next() {
			var name string
			if err := rows.Scan(&name); err != nil {
				return err
			}
			names = append(names, name)
		}
		return errors.Join(rows.Err(), rows.Close())
	})
	return names, wrap(err, "list the queues of", b.cfg.Namespace)
}

// List implements [broker.Lister]. It shows every place. A page costs a statement, or one for each
// priority level. For held messages it reads all messages of the queue, as Stats does. For waiting
// messages of a fair queue it does too, and shows them in the order of their times, not of their
// turns. It waits for the database.
//
// Returns ErrMalformed for an invalid name, place or cursor, ErrNoQueue if the queue does not
// exist, ErrClosed after Close, and errors of the database.
func (b *Broker) List(ctx context.Context, queue string, lq broker.ListQuery) (broker.Page, error) {
	lq, err := lq.Check()
	if err != nil {
		return broker.Page{}, err
	}
	q, err := b.queue(ctx, queue)
	var p broker.Page
	if err == nil {
		switch lq.Place {
		case broker.PlaceWaiting:
			p, err = b.listWaiting(ctx, q, lq)
		case broker.PlaceDelayed:
			p, err = b.listDelayed(ctx, q, lq)
		case broker.PlaceHeld:
			p, err = b.listHeld(ctx, q, lq)
		case broker.PlaceDead:
			p, err = b.listDead(ctx, q, lq)
		}
	}
	return p, wrap(err, "list", queue)
}

// listed is a message of a page, with the end of its lease and its place in the order of its level.
type listed struct {
	stored
	leased, order int64
}

// listWaiting returns a page of waiting messages. Its cursor names the level, the order and the seq
// of the last message. It waits for the database. Returns ErrMalformed for a cursor of another
// form, and errors of the database.
func (b *Broker) listWaiting(ctx context.Context, q *queue, lq broker.ListQuery) (broker.Page, error) {
	at, err := numbers(lq.Cursor, 0, math.MinInt64, 0)
	if err == nil && at[0] < 0 {
		err = broker.MalformedCursor(lq.Cursor)
	}
	if err != nil {
		return broker.Page{}, err
	}
	var rows []listed
	for level := at[0]; level < int64(q.count()) && len(rows) <= lq.Limit; level++ {
		more, err := b.readListed(ctx, q.text.waiting, q.id, level, at[1], at[2], lq.Limit+1-len(rows))
		if err != nil {
			return broker.Page{}, err
		}
		rows = append(rows, more...)
		at = []int64{0, math.MinInt64, 0} // the next level from its beginning
	}
	return pageOf(rows, lq.Limit, func(r *listed) (at int64, cursor string) {
		return *r.due, fmt.Sprintf("%d.%d.%d", *r.level, r.order, *r.seq)
	}), nil
}

// listDelayed returns a page of delayed messages. Its cursor names the order and the seq of the
// last message. It waits for the database. Returns ErrMalformed for a cursor of another form, and
// errors of the database.
func (b *Broker) listDelayed(ctx context.Context, q *queue, lq broker.ListQuery) (broker.Page, error) {
	at, err := numbers(lq.Cursor, math.MinInt64, 0)
	if err != nil {
		return broker.Page{}, err
	}
	var rows []listed
	for level := range q.count() {
		more, err := b.readListed(ctx, q.text.delayed, q.id, level, at[0], at[1], lq.Limit+1)
		if err != nil {
			return broker.Page{}, err
		}
		rows = append(rows, more...)
	}
	slices.SortFunc(rows, func(x, y listed) int { return cmp.Or(cmp.Compare(x.order, y.order), cmp.Compare(*x.seq, *y.seq)) })
	return pageOf(rows, lq.Limit, func(r *listed) (at int64, cursor string) {
		return *r.due, fmt.Sprintf("%d.%d", r.order, *r.seq)
	}), nil
}

// listHeld returns a page of held messages. Its cursor names the generation and the id of the last
// message. It waits for the database. Returns ErrMalformed for a cursor of another form, and errors
// of the database.
func (b *Broker) listHeld(ctx context.Context, q *queue, lq broker.ListQuery) (broker.Page, error) {
	generation, id, ok := strings.Cut(lq.Cursor, ".")
	n, err := strconv.ParseInt(generation, 10, 64)
	if lq.Cursor == "" {
		err, ok = nil, true
	}
	if err != nil || !ok || n < 0 || id != "" && !messagecode.ValidID(id) {
		return broker.Page{}, broker.MalformedCursor(lq.Cursor)
	}
	rows, err := b.readListed(ctx, q.text.held, q.id, id, n, lq.Limit+1)
	if err != nil {
		return broker.Page{}, err
	}
	return pageOf(rows, lq.Limit, func(r *listed) (at int64, cursor string) {
		return r.leased, fmt.Sprintf("%d.%s", *r.generation, *r.id)
	}), nil
}

// listDead returns a page of dead letters. Before the first page it removes the letters above the
// limits. Its cursor is the sequence number of the last letter. It waits for the database. Returns
// ErrMalformed for a cursor of another form, and errors of the database.
func (b *Broker) listDead(ctx context.Context, q *queue, lq broker.ListQuery) (broker.Page, error) {
	at, err := numbers(lq.Cursor, 0)
	switch {
	case err == nil && at[0] < 0:
		err = broker.MalformedCursor(lq.Cursor)
	case lq.Cursor == "":
		err = b.trim(ctx, q)
	}
	if err != nil {
		return broker.Page{}, err
	}
	letters, err := b.readDead(ctx, q, b.text.readDead, at[0], int64(math.MaxInt64), lq.Limit+1)
	if err != nil {
		return broker.Page{}, err
	}
	var p broker.Page
	for i := range letters {
		if i == lq.Limit {
			p.Next = strconv.FormatInt(letters[i-1].seq, 10)
			break
		}
		p.Messages = append(p.Messages, broker.ListedDead(letters[i].dead))
	}
	return p, nil
}

// readListed returns the messages that a query selects. It changes nothing. It waits for the
// database and returns its errors.
func (b *Broker) readListed(ctx context.Context, query string, args ...any) (all []listed, err error) {
	err = b.view(ctx, func(ctx context.Context, tx *sqlconn.Tx) error {
		all = nil
		rows, err := tx.Query(ctx, query, args...)
		if err != nil {
			return err
		}
		for rows.Next() {
			var r listed
			if err := rows.Scan(append(r.columns(), &r.leased, &r.order)...); err != nil {
				return err
			}
			all = append(all, r)
		}
		return errors.Join(rows.Err(), rows.Close())
	})
	return all, err
}

// pageOf returns the page of the first limit rows. describe returns the time of a message, in
// microseconds since 1970, and the cursor of the page after it. Next is set if rows has more than
// limit rows.
func pageOf(rows []listed, limit int, describe func(r *listed) (at int64, cursor string)) broker.Page {
	var p broker.Page
	for i := range rows[:min(limit, len(rows))] {
		m := &broker.Message{}
		rows[i].fill(m)
		at, cursor := describe(&rows[i])
		p.Messages = append(p.Messages, broker.Listed{Message: m, At: sqlconn.Time(at)})
		if i == limit-1 && len(rows) > limit {
			p.Next = cursor
		}
	}
	return p
}

// numbers returns the numbers of a cursor, which dots separate. For the cursor "" it returns first,
// the numbers with which the first page begins. Returns ErrMalformed if the cursor does not hold as
// many numbers as first.
func numbers(cursor string, first ...int64) ([]int64, error) {
	if cursor == "" {
		return first, nil
	}
	parts := strings.Split(cursor, ".")
	if len(parts) != len(first) {
		return nil, broker.MalformedCursor(cursor)
	}
	for i, p := range parts {
		n, err := strconv.ParseInt(p, 10, 64)
		if err != nil {
			return nil, broker.MalformedCursor(cursor)
		}
		first[i] = n
	}
	return first, nil
}

package redisbroker

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/naming"
)

// pageBytes is the approximate number of bytes of a page. A page of large messages has fewer than
// its limit.
const pageBytes = 4 << 20

// Queues implements [broker.QueueLister]. It reads the names of all keys of the database, on a
// cluster from all its masters. Each call to the server reads up to 1,000, so the time grows with
// the number of keys. It waits for the server. Returns ErrClosed after Close, and errors of the
// server.
func (b *Broker) Queues(ctx context.Context) ([]string, error) {
	before, after, _ := strings.Cut(newNames(b.cfg.Namespace, "*").part("m"), "*")
	keys, err := b.conn.Keys(ctx, before+"*"+after)
	if err != nil {
		return nil, wrap(err, "list the queues of", b.cfg.Namespace)
	}
	var names []string
	for _, key := range keys {
		if name := strings.TrimSuffix(strings.TrimPrefix(key, before), after); naming.ValidName(name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil // a key may be read twice
}

// List implements [broker.Lister]. It shows every place, with one call to the server for a page;
// dead letters need a few. A waiting message has a time only if it was delayed, is due, and was not
// made ready yet. A page has about 4 MB at most. It waits for the server.
//
// Of a fair queue it shows the next turns of all keys first. Behind the first eight turns of each
// key the order is only about that of delivery. With thousands of keys a page may have few messages
// or none, and another page follows.
//
// Returns ErrNoQueue if the queue does not exist, ErrMalformed for an invalid name, place or
// cursor, ErrClosed after Close, and errors of the server.
func (b *Broker) List(ctx context.Context, queue string, lq broker.ListQuery) (broker.Page, error) {
	lq, err := lq.Check()
	if err != nil {
		return broker.Page{}, err
	}
	q, err := b.open(queue)
	if err != nil {
		return broker.Page{}, err
	}
	var p broker.Page
	switch lq.Place {
	case broker.PlaceDead:
		p, err = q.listDead(ctx, lq)
	case broker.PlaceHeld:
		p, err = q.listHeld(ctx, lq)
	case broker.PlaceWaiting, broker.PlaceDelayed:
		p, err = q.listReady(ctx, lq)
	}
	return p, wrap(err, "list", queue)
}

// listReady returns a page of waiting or delayed messages, as lq.Place says. Its cursor names the
// list and the index of the next message, see lua/list.lua. It waits for the server. Returns
// ErrMalformed for a cursor of another form, ErrNoQueue if the queue does not exist.
func (q *queue) listReady(ctx context.Context, lq broker.ListQuery) (broker.Page, error) {
	section, index := "0", "0"
	if lq.Cursor != "" {
		section, index, _ = strings.Cut(lq.Cursor, ".")
		if !isNumber(section, 16) || !isNumber(index, 53) {
			return broker.Page{}, broker.MalformedCursor(lq.Cursor)
		}
	}
	answer, err := q.listScript(ctx, lq, section, index)
	if err != nil {
		return broker.Page{}, err
	}
	var p broker.Page
	if next := number(answer, 1); next >= 0 {
		p.Next = fmt.Sprintf("%d.%d", next, number(answer, 2))
	}
	p.Messages = listed(answer)
	return p, nil
}

// listHeld returns a page of held messages. The server returns them in chunks, whose size it
// chooses. The cursor names the chunk, and how many of its messages earlier pages have shown. It
// waits for the server. Returns ErrMalformed for a cursor of another form, ErrNoQueue if the queue
// does not exist.
func (q *queue) listHeld(ctx context.Context, lq broker.ListQuery) (broker.Page, error) {
	chunk, skip := "0", ""
	if lq.Cursor != "" {
		chunk, skip, _ = strings.Cut(lq.Cursor, ".")
	}
	shown, err := broker.Offset(skip)
	if err != nil || !isNumber(chunk, 64) {
		return broker.Page{}, broker.MalformedCursor(lq.Cursor)
	}
	answer, err := q.listScript(ctx, lq, "0", chunk)
	if err != nil {
		return broker.Page{}, err
	}
	p := broker.Page{Messages: listed(answer)}
	p.Messages = p.Messages[min(shown, len(p.Messages)):]
	switch {
	case len(p.Messages) > lq.Limit:
		p.Messages = p.Messages[:lq.Limit]
		p.Next = fmt.Sprintf("%s.%d", chunk, shown+lq.Limit)
	case number(answer, 1) >= 0:
		p.Next = text(answer, 2) + ".0"
	}
	return p, nil
}

// listScript executes lua/list.lua for the place and the limit of lq, and waits for the server.
// section and index say where the page begins. It returns the answer: the status, the two parts of
// the next cursor, and the messages. Returns ErrNoQueue if the queue does not exist.
func (q *queue) listScript(ctx context.Context, lq broker.ListQuery, section, index string) ([]any, error) {
	answer, _, err := q.callWithLevels(ctx, q.b.conn.Eval, q.b.scripts.list, string(lq.Place), section, index, lq.Limit, pageBytes)
	return answer, err
}

// listed returns the messages of an answer of lua/list.lua. From index 3 on the answer holds the
// key, the value and the time of each message. A message without a time gets a zero At.
func listed(answer []any) []broker.Listed {
	var all []broker.Listed
	var types string
	for i := 3; i+2 < len(answer); i += 3 {
		l := broker.Listed{Message: &broker.Message{}}
		decode(l.Message, text(answer, i), text(answer, i+1), &types)
		if us, err := strconv.ParseFloat(text(answer, i+2), 64); err == nil {
			l.At = time.UnixMicro(int64(us))
		}
		all = append(all, l)
	}
	return all
}

// listDead returns a page of dead letters, after it has dropped those that are too old. A page ends
// after about pageBytes. Its cursor is the index of the next letter. It waits for the server.
// Returns ErrMalformed for a cursor of another form, ErrNoQueue if the queue does not exist.
func (q *queue) listDead(ctx context.Context, lq broker.ListQuery) (broker.Page, error) {
	from, err := broker.Offset(lq.Cursor)
	if err != nil {
		return broker.Page{}, err
	}
	var p broker.Page
	bytes := 0
	for size := firstDeadChunk; bytes < pageBytes && len(p.Messages) < lq.Limit; size = min(2*size, maxDeadChunk) {
		size = min(size, lq.Limit-len(p.Messages))
		v, err := q.eval(ctx, q.b.write, q.b.scripts.dead, from, from+size-1, "", q.b.deadAge())
		if err != nil {
			return broker.Page{}, err
		}
		answer, status, err := parseAnswer(v)
		if err != nil || status == noQueue {
			return broker.Page{}, noQueueOr(err)
		}
		for i := 3; i < len(answer); i++ {
			letter := text(answer, i)
			bytes += len(letter)
			p.Messages = append(p.Messages, broker.ListedDead(parseDead(q.name, letter)))
			from++
		}
		if from >= int(number(answer, 1)) {
			return p, nil
		}
	}
	p.Next = strconv.Itoa(from)
	return p, nil
}

// isNumber reports whether s is a decimal number without a sign, of at most this many bits.
func isNumber(s string, bits int) bool {
	_, err := strconv.ParseUint(s, 10, bits)
	return err == nil
}

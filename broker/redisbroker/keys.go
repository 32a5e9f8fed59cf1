package redisbroker

import (
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/swarmiji/swarmiji/broker"
)

// keyChunk is the number of keys whose states one call reads.
const keyChunk = 200

// ListKeys implements [broker.KeyLister]. It reads the names of all keys of the queue. Each call to
// the server reads about 1,000, so the time of a page grows with the number of keys. It waits for
// the server.
//
// Held is known from the first claim with bounds until a minute after the last one. Oldest is exact
// to the second.
//
// Returns ErrNoQueue if the queue does not exist. Returns ErrMalformed if its name is not valid or
// it is not fair. It also returns ErrClosed after Close, and errors of the server.
func (b *Broker) ListKeys(ctx context.Context, queue, cursor string, limit int) (broker.KeyPage, error) {
	q, err := b.open(queue)
	if err != nil {
		return broker.KeyPage{}, err
	}
	names, err := q.keysFrom(ctx, cursor)
	if err != nil {
		return broker.KeyPage{}, wrap(err, "list the keys of", queue)
	}
	if limit <= 0 {
		limit = broker.DefaultPage
	}
	limit = min(limit, broker.MaxPage)
	var p broker.KeyPage
	for {
		part := names[:min(keyChunk, len(names))]
		names = names[len(part):]
		if err := q.readKeys(ctx, part, &p); err != nil {
			return broker.KeyPage{}, wrap(err, "list the keys of", queue)
		}
		if len(p.Keys) > limit {
			p.Next = p.Keys[limit].Key
			p.Keys = p.Keys[:limit]
			return p, nil
		}
		if len(names) == 0 {
			return p, nil
		}
	}
}

// keysFrom returns the names of the keys from the name cursor on, sorted. Some may have no
// messages. It waits for the server. Returns ErrNoQueue if the queue does not exist, ErrMalformed
// if it is not fair.
func (q *queue) keysFrom(ctx context.Context, cursor string) ([]string, error) {
	var names []string
	for place, at := int64(1), "0"; place > 0; {
		answer, _, err := q.callWithLevels(ctx, q.b.conn.Eval, q.b.scripts.keys, "names", place, at)
		if err != nil {
			return nil, err
		}
		if number(answer, 0) == notFound {
			return nil, broker.NotFair(q.name, "keys")
		}
		place, at = number(answer, 1), text(answer, 2)
		for i := 3; i < len(answer); i++ {
			if name := text(answer, i); name >= cursor {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// readKeys appends the states of the keys names to the page p, without those that have neither
// messages nor a used rate. It also sets p.Used. It waits for the server.
func (q *queue) readKeys(ctx context.Context, names []string, p *broker.KeyPage) error {
	args := make([]any, 0, 1+len(names))
	args = append(args, "states")
	for _, name := range names {
		args = append(args, name)
	}
	answer, _, err := q.callWithLevels(ctx, q.b.conn.Eval, q.b.scripts.keys, args...)
	if err != nil {
		return err
	}
	p.Used = microTime(text(answer, 1))
	for i, name := range names {
		at := 3 + 4*i
		k := broker.KeyState{Key: name, Ready: int(number(answer, at)), Held: int(number(answer, at+1)), Used: microTime(text(answer, at+3))}
		if k.Ready == 0 && k.Held == 0 && k.Used.IsZero() {
			continue
		}
		if second := number(answer, at+2); second > 0 {
			k.Oldest = time.Unix(second, 0)
		}
		if number(answer, 2) == 0 {
			k.Held = -1
		}
		p.Keys = append(p.Keys, k)
	}
	return nil
}

// microTime returns the time of a number of microseconds since 1970, and zero for another text.
func microTime(text string) time.Time {
	us, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return time.Time{}
	}
	return time.UnixMicro(us)
}

package natsbroker

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/natsconn"
)

// Queues implements [broker.QueueLister]. A queue exists if it has a record. Without a stream there
// are no queues. It waits for the server. Returns ErrClosed after Close, and errors of the server.
func (b *Broker) Queues(ctx context.Context) ([]string, error) {
	if b.stop.Err() != nil {
		return nil, fmt.Errorf("nats queues: %w", errClosed())
	}
	subjects, err := b.conn.SubjectNames(ctx, b.names.stream, b.names.record("*"))
	if errors.Is(err, natsconn.ErrNoStream) {
		return nil, nil
	}
	if err != nil {
		return nil, wrap(err, "list the queues of", b.cfg.Namespace)
	}
	names := make([]string, len(subjects))
	for i, s := range subjects {
		names[i] = strings.ReplaceAll(lastToken(s), "=", ".")
	}
	slices.Sort(names)
	return names, nil
}

// List implements [broker.Lister]. It shows every place, with a request to the server for each
// message. Delayed messages come in the order of their submissions. A message that was returned to
// the queue is held, and when its lease ends is not known. It waits for the server.
//
// Returns ErrNoQueue if the queue does not exist, ErrMalformed for an invalid name, place or
// cursor, and errors of the server.
func (b *Broker) List(ctx context.Context, name string, lq broker.ListQuery) (broker.Page, error) {
	p, err := b.list(ctx, name, lq)
	return p, wrap(err, "list", name)
}

// part is a range of the stream in which the messages of a place are.
type part struct {
	subject  string
	from, to uint64 // sequences, both included
}

// list returns a page like List, but its errors do not name the queue. A cursor names the part, and
// the sequence from which the next page begins. It reads up to twice lq.Limit messages.
func (b *Broker) list(ctx context.Context, name string, lq broker.ListQuery) (broker.Page, error) {
	lq, err := lq.Check()
	if err != nil {
		return broker.Page{}, err
	}
	q, err := b.queue(ctx, name)
	if err != nil {
		return broker.Page{}, err
	}
	parts, err := b.parts(ctx, q, lq.Place)
	if err != nil {
		return broker.Page{}, err
	}
	at, from, err := parseCursor(lq.Cursor, len(parts))
	if err != nil {
		return broker.Page{}, err
	}
	var p broker.Page
	for reads := 0; at < len(parts); at, from = at+1, 0 {
		for from = max(from, parts[at].from); from <= parts[at].to; reads++ {
			if reads == 2*lq.Limit || len(p.Messages) == lq.Limit {
				p.Next = strconv.Itoa(at) + "." + strconv.FormatUint(from, 10)
				return p, nil
			}
			st, err := b.conn.GetNext(ctx, b.names.stream, parts[at].subject, from)
			if errors.Is(err, natsconn.ErrNotFound) || err == nil && st.Seq > parts[at].to {
				break
			}
			if err != nil {
				return broker.Page{}, err
			}
			from = st.Seq + 1
			if l, ok := listed(q, st, lq.Place); ok {
				p.Messages = append(p.Messages, l)
			}
		}
	}
	return p, nil
}

// parts returns the parts of the stream that hold the messages of a place. For waiting and held
// messages these are one for each level, for the other places it is one. For dead letters it first
// drops those that have expired. It waits for the server and returns its errors.
func (b *Broker) parts(ctx context.Context, q *queue, place broker.Place) ([]part, error) {
	switch place {
	case broker.PlaceDelayed:
		return []part{{q.schedule + "*", 1, math.MaxUint64}}, nil
	case broker.PlaceDead:
		return []part{{q.dead + ">", 1, math.MaxUint64}}, b.dropExpiredDead(ctx, q)
	}
	parts := make([]part, len(q.work))
	for i, subject := range q.work {
		c, err := b.state(ctx, q, i)
		if err != nil && !errors.Is(err, natsconn.ErrNoConsumer) {
			return nil, err
		}
		// The consumer delivers in the order of sequences, and a settled message is removed.
		if place == broker.PlaceHeld {
			parts[i] = part{subject + "*", 1, c.Delivered.Stream}
		} else {
			parts[i] = part{subject + "*", c.Delivered.Stream + 1, math.MaxUint64}
		}
	}
	return parts, nil
}

// parseCursor returns the index of the part and the sequence in a cursor of list. The cursor ""
// gives 0 and 0. parts is the number of parts. Returns ErrMalformed for a cursor of another form,
// or if it names a part that does not exist.
func parseCursor(cursor string, parts int) (at int, from uint64, err error) {
	if cursor == "" {
		return 0, 0, nil
	}
	place, seq, _ := strings.Cut(cursor, ".")
	n, err := strconv.ParseUint(place, 10, 16)
	if err == nil {
		from, err = strconv.ParseUint(seq, 10, 64)
	}
	if err != nil || int(n) >= parts {
		return 0, 0, broker.MalformedCursor(cursor)
	}
	return int(n), from, nil
}

// listed returns the entry of a page for a stored message of a place, and true. At is the due time
// of a delayed message, and the time of storage of a waiting one. For a notice of a moved message
// it returns false.
func listed(q *queue, st *natsconn.Stored, place broker.Place) (broker.Listed, bool) {
	if place == broker.PlaceDead {
		return broker.ListedDead(decodeDead(q, st)), true
	}
	if headerValue(st.Header, headerMoved) != "" {
		return broker.Listed{}, false
	}
	l := broker.Listed{Message: &broker.Message{}}
	decode(l.Message, idOf(lastToken(st.Subject)), st.Header, st.Data)
	switch place {
	case broker.PlaceDelayed:
		l.At, _ = time.Parse(time.RFC3339Nano, strings.TrimPrefix(headerValue(st.Header, headerSchedule), "@at "))
	case broker.PlaceWaiting:
		l.At = st.Time
	}
	return l, true
}

// maxNotices is the number of notices of moved messages that nextWaiting passes over.
const maxNotices = 16

// nextWaiting returns the first message of a level from the sequence seq on, without notices of
// moved messages. It returns nil if no message waits, or only behind many notices. It waits for the
// server.
func (b *Broker) nextWaiting(ctx context.Context, q *queue, level int, seq uint64) (*natsconn.Stored, error) {
	for range maxNotices {
		st, err := b.conn.GetNext(ctx, b.names.stream, q.work[level]+"*", seq)
		if errors.Is(err, natsconn.ErrNotFound) {
			return nil, nil //nolint:nilnil // nothing waits
		}
		if err != nil || headerValue(st.Header, headerMoved) == "" {
			return st, err
		}
		seq = st.Seq + 1
	}
	return nil, nil //nolint:nilnil // not known
}

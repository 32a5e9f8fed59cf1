package broker

import (
	"context"
	"fmt"
	"strconv"
	"time"
)

// QueueLister is a Broker that knows which queues exist.
type QueueLister interface {
	// Queues returns the names of the queues that exist, sorted. A queue that is created or removed
	// during the call may be missing.
	Queues(ctx context.Context) ([]string, error)
}

// Place says where a message of a queue is.
type Place string

// The places of a message.
const (
	PlaceWaiting Place = "waiting" // it waits for a consumer
	PlaceDelayed Place = "delayed" // it waits for its time
	PlaceHeld    Place = "held"    // it is delivered and not settled
	PlaceDead    Place = "dead"    // it is a dead letter
)

// Places returns all places, in the order of a message's life.
func Places() []Place { return []Place{PlaceWaiting, PlaceDelayed, PlaceHeld, PlaceDead} }

// The numbers of messages of a page.
const (
	DefaultPage = 100  // if ListQuery.Limit is 0
	MaxPage     = 1000 // a larger Limit counts as this one
)

// ListQuery selects a page of the messages of a queue.
type ListQuery struct {
	Place Place
	// Cursor is Next of the page before. "": the first page.
	Cursor string
	// Limit is the largest number of messages. Default: [DefaultPage]. It is at most [MaxPage].
	Limit int
}

// Check returns a copy of q whose Limit is usable: [DefaultPage] in place of 0 and less, at most
// [MaxPage]. If the place is not one of [Places] it returns q unchanged and [ErrMalformed].
func (q ListQuery) Check() (ListQuery, error) {
	switch q.Place {
	case PlaceWaiting, PlaceDelayed, PlaceHeld, PlaceDead:
	default:
		return q, fmt.Errorf("%w: place %.40q; the places are waiting, delayed, held and dead", ErrMalformed, q.Place)
	}
	if q.Limit <= 0 {
		q.Limit = DefaultPage
	}
	q.Limit = min(q.Limit, MaxPage)
	return q, nil
}

// Listed is a message of a [Page].
type Listed struct {
	Message *Message
	// At is a time that belongs to the place, zero if the broker does not know it:
	//
	//   - waiting: since when the message waits
	//   - delayed: when it is due
	//   - held: when the lease ends, unless the consumer renews it
	//   - dead: when it was dead-lettered
	At time.Time
	// Dead has the reason of a dead letter. Its Message and At are those of Listed. nil in other
	// places.
	Dead *Dead
}

// Page is a part of the messages in one place of a queue.
type Page struct {
	Messages []Listed
	// Next is the cursor of the next page. "": this page is the last one.
	Next string
}

// Lister is a Broker that can show the messages of its queues.
type Lister interface {
	// List returns a page of the messages that are in one place of a queue. It changes nothing: no
	// message moves, and no delivery is counted. The caller must not change the messages.
	//
	//   - Waiting messages come in the order of their delivery, dead letters from the oldest on.
	//     Delayed ones come in the order of their times or of their submissions. Held ones have no
	//     order.
	//   - A page is the result of a bounded number of reads. It may have fewer messages than Limit,
	//     even none, and a Next.
	//   - While no message comes, goes or moves, each message is in one page.
	//     Otherwise some may be missing or be in two pages.
	//   - Returns [ErrNoQueue] if the queue does not exist.
	//   - Returns [ErrMalformed] for an unknown place, or for a cursor that List cannot have returned.
	//   - Returns [ErrUnsupported] for a place that this broker cannot show.
	List(ctx context.Context, queue string, q ListQuery) (Page, error)
}

// MalformedCursor makes an error that wraps [ErrMalformed] and shows the start of the cursor. It
// does not check the cursor. An adapter returns it for a cursor that List cannot have returned.
func MalformedCursor(cursor string) error {
	return fmt.Errorf("%w: cursor %.80q", ErrMalformed, cursor)
}

// Offset returns the number in a cursor. An adapter whose cursors are the offset of the next
// message uses it. The cursor "" is 0. Returns [ErrMalformed] if the cursor is not a decimal number
// from 0 to 2147483647.
func Offset(cursor string) (int, error) {
	if cursor == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(cursor, 10, 31)
	if err != nil {
		return 0, MalformedCursor(cursor)
	}
	return int(n), nil
}

// PageDead returns a page of the dead letters of a queue, and removes none. It scans from the
// oldest letter on and passes over those before the page, so late pages need more time. The cursor
// is the offset of the next letter. It does not read q.Place, except to refuse an unknown place.
//
// Returns [ErrMalformed] for an unknown place, or for a cursor that is not an offset. Its other
// errors are those of ScanDead.
func PageDead(ctx context.Context, dl DeadLetterer, queue string, q ListQuery) (Page, error) {
	q, err := q.Check()
	if err != nil {
		return Page{}, err
	}
	skip, err := Offset(q.Cursor)
	if err != nil {
		return Page{}, err
	}
	var p Page
	seen := 0
	err = dl.ScanDead(ctx, queue, func(d *Dead) DeadAction {
		if seen++; seen <= skip {
			return DeadKeep
		}
		if len(p.Messages) == q.Limit {
			p.Next = strconv.Itoa(skip + q.Limit)
			return DeadStop
		}
		p.Messages = append(p.Messages, ListedDead(*d))
		return DeadKeep
	})
	if err != nil {
		return Page{}, err
	}
	return p, nil
}

// ListedDead returns the entry of a page for a dead letter, with the Message and At of d, and d
// itself as Dead.
func ListedDead(d Dead) Listed { return Listed{Message: d.Message, At: d.At, Dead: &d} }

// DeadFinder is a Broker that finds a dead letter by the id of its message, without a scan.
type DeadFinder interface {
	// ScanDeadID calls fn, as [DeadLetterer] describes for ScanDead, with the dead letters whose
	// Message has this ID. Returns [ErrNoQueue] if the queue does not exist. If no
	// letter has the id, it returns nil.
	ScanDeadID(ctx context.Context, queue, id string, fn func(*Dead) DeadAction) error
}

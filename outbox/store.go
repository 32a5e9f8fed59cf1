package outbox

import (
	"context"
	"time"

	"github.com/swarmiji/swarmiji/broker"
)

// Buckets is the number of buckets of an outbox. Messages with one OrderKey are in one bucket. At
// most this many relays work at the same time.
const Buckets = 64

// Store is the outbox of a relay: the messages that wait in a database. Safe for concurrent use.
type Store interface {
	// Lease registers the relay, renews its leases, and gives it its share of the buckets: as many as
	// each live relay gets. It releases buckets beyond the share and leases free ones. A bucket is
	// free if it was released or its lease has ended, on the clock of the database.
	Lease(ctx context.Context, relay string, lease time.Duration) (Share, error)
	// Leave releases all buckets of the relay and forgets it.
	Leave(ctx context.Context, relay string) error
	// Read returns messages of the buckets, ordered by Seq, up to some hundred and some MiB. It
	// returns no message of a key that a failed message stops. A failed message is returned when its
	// time has come. Unless many is true, failed messages are a small part of the result.
	//
	// All messages that were committed before the call are considered. So if a message of a key is
	// returned, all earlier ones of the key are returned too, or are gone.
	Read(ctx context.Context, buckets []int, many bool) ([]Row, error)
	// Settle stores the outcomes of rows in one transaction. It may be repeated. Rows that are gone
	// are ignored.
	Settle(ctx context.Context, s Settlement) error
	// Watch returns a channel that receives a value when messages may have been committed. Values may
	// be missing. Call stop after use.
	Watch() (changed <-chan struct{}, stop func())
}

// Share lists the buckets that a relay has leased.
type Share struct {
	Buckets []int // in ascending order
	// Missing is the number of buckets that the relay should have and other relays still hold.
	Missing int
}

// Row is a stored message.
type Row struct {
	broker.Outgoing

	Seq      int64 // the order of the submissions
	Failures int   // publishes that have failed
}

// Ref returns what names the row in a [Settlement].
func (r *Row) Ref() Ref { return Ref{Seq: r.Seq, ID: r.Message.ID} }

// Ref names a row. The number alone is not enough: see Settle of sqloutbox.Store.
type Ref struct {
	Seq int64
	ID  string // of the message
}

// Settlement holds the outcomes of rows.
type Settlement struct {
	Sent   []Ref     // confirmed rows, which are deleted
	Failed []Failure // to try again
	Dead   []Failure // never to try again
}

// Failure is the outcome of a row that was not published.
type Failure struct {
	Ref

	Reason string
	After  time.Duration // when to try again, for Failed
}

// Stats counts the messages of an outbox.
type Stats struct {
	Waiting int           // committed and not sent, including those that fail
	Oldest  time.Duration // age of the oldest waiting message
	Failing int           // waiting messages whose last publish failed
	Reason  string        // of the oldest failing message
	Dead    int           // dead messages
	Relays  int           // live relays
}

// DeadMessage is a message that could never be sent.
type DeadMessage struct {
	ID         string
	Generation int
	Queue      string
	OrderKey   string
	Size       int       // of the body, in bytes
	At         time.Time // when it became dead
	Reason     string
}

// WaitingMessage is a message that is committed and not sent.
type WaitingMessage struct {
	ID         string
	Generation int
	Queue      string
	OrderKey   string
	At         time.Time // when it was stored
	Failures   int       // publishes that have failed
	Next       time.Time // when a failed message is tried again; zero: it has not failed
	Reason     string    // of the last failure
}

// Inspector shows the messages of an outbox, and changes those that are dead or fail.
type Inspector interface {
	// Stats counts the messages. Its time grows with their number.
	Stats(ctx context.Context) (Stats, error)
	// Waiting returns up to most waiting messages, the oldest first. If failing is true, it returns
	// only those whose last publish failed.
	Waiting(ctx context.Context, failing bool, most int) ([]WaitingMessage, error)
	// Dead returns up to most dead messages, the oldest first.
	Dead(ctx context.Context, most int) ([]DeadMessage, error)
	// Requeue puts dead messages back, behind the messages that wait, and returns their number. Ids of
	// no dead message are ignored. A message stays dead while another one with its id, generation and
	// queue waits. Of several such dead messages, one call puts back the oldest.
	Requeue(ctx context.Context, ids ...string) (int, error)
	// Drop deletes for good messages that are dead, and waiting ones whose last publish failed. It
	// returns their number. Other ids are ignored. A relay that publishes a message at that moment may
	// still send it.
	Drop(ctx context.Context, ids ...string) (int, error)
}

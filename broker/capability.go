package broker

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Outgoing is a message with its way: a queue, and the earliest time it may be seen (zero: at once).
type Outgoing struct {
	Queue   string
	Message *Message
	At      time.Time // as with PublishAt of [Delayer]
	Reason  string    // of a retry: why the task failed, which an adapter may log; "": none
}

// Delayer is a Broker that holds messages back.
type Delayer interface {
	// PublishAt is Publish of a message that is not handed out before at on the broker's clock (where the broker has
	// none: on this process's). A time in the past means at once.
	//
	// What time.Now().Add(d) returns is d from now, whatever this process's clock shows: see [FromNow].
	PublishAt(ctx context.Context, queue string, m *Message, at time.Time) error
}

// BatchPublisher is a Broker that takes many messages in one trip.
type BatchPublisher interface {
	// PublishBatch is Publish or PublishAt of each message, of any queues and times. If any failed the error is a
	// [*BatchError].
	PublishBatch(ctx context.Context, ms []Outgoing) error
}

// BatchError tells for each message of a batch what became of it.
type BatchError struct {
	Errs []error // in the order of the batch; nil where the message is confirmed
}

// Error returns the number of failures and the first of them.
func (e *BatchError) Error() string {
	n, first := 0, error(nil)
	for _, err := range e.Errs {
		if err != nil {
			if n++; first == nil {
				first = err
			}
		}
	}
	return fmt.Sprintf("%d of %d messages failed, the first with: %v", n, len(e.Errs), first)
}

// Unwrap returns the failures, so that errors.Is finds a class that any of them has.
func (e *BatchError) Unwrap() []error {
	var errs []error
	for _, err := range e.Errs {
		if err != nil {
			errs = append(errs, err)
		}
	}
	return errs
}

// BatchErrors returns the error of each of n messages from what PublishBatch returned.
func BatchErrors(err error, n int) []error {
	if err == nil {
		return make([]error, n)
	}
	if be, ok := errors.AsType[*BatchError](err); ok && len(be.Errs) == n {
		return be.Errs
	}
	errs := make([]error, n)
	for i := range errs {
		errs[i] = err
	}
	return errs
}

// Retrier is a Broker that replaces a delivery by its successor in one step: both happen or neither.
type Retrier interface {
	Retry(ctx context.Context, d Delivery, next Outgoing) error
}

// Queue describes a queue to declare.
type Queue struct {
	Name string
	// Levels are the upper bounds of the queue's priority levels, ascending: a message of priority p goes to the first
	// level whose bound is at least p. None: one level, priorities are not honoured.
	Levels []int
}

// Declarer is a Broker whose queues must exist before they are used.
type Declarer interface {
	// Declare creates the queues that do not exist; it is idempotent. A queue that exists with other settings is used as it
	// is, if it can be, and the adapter says so once.
	Declare(ctx context.Context, qs ...Queue) error
}

// SyncAcker is a Delivery that can wait until the broker has taken an Ack, for tasks that run at most once.
type SyncAcker interface {
	// AckSync is Ack; nil means that the broker will not hand the message out again. A broker whose node can forget that when it
	// is killed has deliveries that are an [AckChecker]. [ErrLeaseLost] means that nothing was acknowledged. After
	// [ErrIndeterminate] AckSync may be called again; it returns nil if an earlier call was executed.
	AckSync(ctx context.Context) error
}

// Resizer is a Subscription whose Prefetch can change.
type Resizer interface {
	// SetPrefetch changes how many unsettled messages are held; what is held above a smaller n stays until it is settled.
	// 0 stops the fetching: Receive hands out what is held and then waits.
	SetPrefetch(ctx context.Context, n int) error
}

// PrefetchAdviser is a Broker on which messages should rather wait in their queue than in a
// consumer: where another program would take those that wait here for lost, or could work on them.
type PrefetchAdviser interface {
	// PrefetchPerWorker returns how many unsettled messages a consumer holds for each of its
	// workers, 1 or more, where its configuration does not say. It is always the same.
	PrefetchPerWorker() int
}

// Buffer is a Subscription that tells what it holds and has not handed out yet: up to its Prefetch.
// There is no fallback: without it the number is unknown.
type Buffer interface {
	// Buffered returns these messages, the next one first. The caller must not change them.
	Buffered() []*Message
}

// Stats is the size of a queue. -1 means that the broker cannot tell.
type Stats struct {
	Ready   int // waiting for a consumer
	Held    int // handed out and not settled
	Delayed int // waiting for their time
	Dead    int // dead letters

	// DeadDropped is how many dead letters the bounds have removed: since the queue was made, or as
	// the adapter says.
	DeadDropped int
}

// Inspector is a Broker that tells about its queues.
type Inspector interface {
	// Stats returns the size of a queue; [ErrNoQueue] if there is none.
	Stats(ctx context.Context, queue string) (Stats, error)
	// Purge removes the messages that wait in the queue and returns how many they were. Held, delayed and dead ones stay.
	Purge(ctx context.Context, queue string) (int, error)
}

// Auditor is a Broker that can tell what is weaker than what its adapter promises.
type Auditor interface {
	// Audit returns, in sentences for people, which settings of the server, of the queue and of
	// what belongs to it are weaker than what the adapter promises with its own, what of it is
	// missing, and whether its dead letters are full. "" for queue asks about the server alone. It
	// changes nothing. nil: nothing was found; [ErrNoQueue] if there is no such queue.
	Audit(ctx context.Context, queue string) ([]string, error)
}

// Locator is a Broker that knows where in its own terms a queue lies, for events.
type Locator interface {
	// Locate returns the exchange and the routing key to which a message for queue is published.
	Locate(queue string) (exchange, routingKey string)
}

// Finder is a Broker that can reach a waiting message by its id.
type Finder interface {
	// Find returns a message that is queued or delayed, with its time (zero if it waits for a consumer). [ErrNotFound] if
	// there is none, also when it is held by a consumer.
	Find(ctx context.Context, queue, id string) (Outgoing, error)
	// Delete removes it. [ErrNotFound] if there is none.
	Delete(ctx context.Context, queue, id string) error
	// Update replaces it by o, whose ID is the same; o.At may change its time. [ErrNotFound] if there is none.
	Update(ctx context.Context, queue string, o Outgoing) error
}

// ErrNotFound is what a [Finder] returns when no waiting message has the id.
var ErrNotFound = errors.New("broker: message not found")

// ConnState is the state of a broker's connection.
type ConnState string

// The states of a connection.
const (
	Connected    ConnState = "connected"
	Disconnected ConnState = "disconnected"
	Blocked      ConnState = "blocked"
)

// Watcher is a Broker that tells of its connection's state.
type Watcher interface {
	// Watch calls fn with the present state and at each change, one call at a time, until stop is called. err is the
	// reason of a Disconnected or Blocked state; it holds no secret.
	Watch(fn func(s ConnState, err error)) (stop func())
}

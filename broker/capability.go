package broker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/swarmiji/swarmiji/tx"
)

// Outgoing is a message with its destination: a queue, and the earliest time of delivery. A zero At
// means at once.
type Outgoing struct {
	Queue   string
	Message *Message
	At      time.Time // as with PublishAt of [Delayer]
	// Reason says why the task failed, if the message is a retry. An adapter may log it. "": no reason
	// is known.
	Reason string
	// OrderKey orders the messages of an outbox: those with the same key are published in the order of
	// their submissions, see package outbox. Other brokers ignore it. "": no order.
	OrderKey string
}

// Delayer is a Broker that supports delayed messages.
type Delayer interface {
	// PublishAt publishes m like Publish, but the broker does not deliver it before at. The broker's
	// clock counts; where the broker has no clock, the clock of this process. A time in the past means
	// at once.
	//
	// A time that time.Now().Add(d) returned means d from now, even if this process's clock is wrong.
	// See [FromNow].
	PublishAt(ctx context.Context, queue string, m *Message, at time.Time) error
}

// BatchPublisher is a Broker that accepts many messages in one round trip.
type BatchPublisher interface {
	// PublishBatch publishes each message as Publish or PublishAt does. The messages may have
	// different queues and times. If any message failed it returns a [*BatchError].
	PublishBatch(ctx context.Context, ms []Outgoing) error
}

// BatchError holds the outcome of each message of a batch.
type BatchError struct {
	Errs []error // in the order of the batch; nil where the message is confirmed
}

// Error returns a text with the number of failed messages and the first error.
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

// Unwrap returns all errors that are not nil, so that errors.Is finds the class of each.
func (e *BatchError) Unwrap() []error {
	var errs []error
	for _, err := range e.Errs {
		if err != nil {
			errs = append(errs, err)
		}
	}
	return errs
}

// BatchErrors returns one error for each of the n messages of a batch. err is the result of
// PublishBatch: for a [*BatchError] of n messages it returns its Errs. For any other error it
// returns that error n times. For nil it returns n nils.
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

// Retrier is a Broker that replaces a delivery by its successor in one atomic step. Either the
// delivery is acknowledged and next is published, or neither happens.
type Retrier interface {
	// Retry acknowledges d and publishes next. After an error other than [ErrIndeterminate]
	// neither has happened, and d may be settled again unless the error is [ErrSettled] or
	// [ErrLeaseLost].
	Retry(ctx context.Context, d Delivery, next Outgoing) error
}

// Queue describes a queue that [Declarer] creates.
type Queue struct {
	Name string
	// Levels are the upper bounds of the queue's priority levels, in ascending order. A message of
	// priority p belongs to the first level whose bound is at least p. Empty: the queue has one level.
	// Then a producer refuses priorities other than task.DefaultPriority, and the broker ignores them.
	Levels []int
	// Fair delivers messages in turns over the Keys that have ready ones, in proportion to Weight.
	//
	//   - Each priority level has its own turns. A message of a more urgent level comes first.
	//   - The messages of one key are delivered in order. A message that was released without a delay
	//     before its task started stands first in its key, and its turn is refunded.
	//   - A delayed message takes a turn of its key when it is due.
	//
	// An adapter with lanes approximates this: weights and the order within a key hold roughly only.
	// A broker that cannot do this returns [ErrUnsupported], and the error names the queue.
	Fair bool
}

// Describer is a Broker that can show how a queue was declared.
type Describer interface {
	// Describe returns the name of a queue and the settings that it has on the broker. Returns
	// [ErrNoQueue] if the queue does not exist.
	Describe(ctx context.Context, queue string) (Queue, error)
}

// Declarer is a Broker whose queues must exist before they are used.
type Declarer interface {
	// Declare creates the queues that do not exist. It is idempotent. A queue that exists with other
	// settings is used with these if possible, and the adapter logs the difference once.
	Declare(ctx context.Context, qs ...Queue) error
}

// SyncAcker is a Delivery that can wait until the broker has accepted an acknowledgement. Tasks
// that run at most once need it.
type SyncAcker interface {
	// AckSync acknowledges the delivery and waits for the broker's answer. nil means that the broker
	// does not deliver the message again.
	//
	//   - Some brokers can forget the acknowledgement when a node is killed. Their deliveries
	//     implement [AckChecker].
	//   - [ErrLeaseLost] means that nothing was acknowledged.
	//   - After [ErrIndeterminate] AckSync may be called again. It returns nil if an earlier call was
	//     executed.
	AckSync(ctx context.Context) error
}

// Resizer is a Subscription whose Prefetch can be changed.
type Resizer interface {
	// SetPrefetch changes the number of unsettled messages that the subscription holds at most. If it
	// holds more than n already, it keeps them until they are settled. 0 stops the fetching: Receive
	// returns the messages held and then waits.
	SetPrefetch(ctx context.Context, n int) error
}

// Divider is a Subscription that can say whether it fetches each priority level or lane of its
// queue by itself.
type Divider interface {
	// Divided reports whether it does. Then the subscription holds messages of one level or lane
	// while as many workers as its prefetch run those of another. SetPrefetch of [Resizer] with 0
	// avoids that. The answer never changes.
	Divided() bool
}

// PrefetchAdviser is a Broker whose messages should wait in the queue and not in a consumer. The
// reason may be a foreign program that works on the same queue, or that regards messages in a
// consumer as lost.
type PrefetchAdviser interface {
	// PrefetchPerWorker returns how many unsettled messages a consumer holds for each of its workers
	// if its configuration does not say. It is at least 1 and always the same number.
	PrefetchPerWorker() int
}

// Buffer is a Subscription that can list the messages that it holds and that Receive has not
// returned yet. They are at most Prefetch. Without this interface the number is unknown.
type Buffer interface {
	// Buffered returns these messages, the next one first. The caller must not change them.
	Buffered() []*Message
}

// Stats counts the messages of a queue. -1 means that the broker cannot count them.
type Stats struct {
	Ready   int // waiting for a consumer
	Held    int // delivered and not settled
	Delayed int // waiting for their time
	Dead    int // dead letters

	// DeadDropped counts the dead letters that the limits of age and number have removed, since the
	// queue was created unless the adapter documents another start.
	DeadDropped int

	// Oldest is the time from which the oldest waiting message has waited: its publication, or the
	// end of its delay. A message that a consumer gave back keeps its time or begins a new one. It
	// is exact to a second, and in a long backlog to some percent of the age. Zero: no message
	// waits, or the broker does not know the time.
	Oldest time.Time
}

// Inspector is a Broker that can count and remove the messages of its queues.
type Inspector interface {
	// Stats returns the counters of a queue. Returns [ErrNoQueue] if the queue does not exist.
	Stats(ctx context.Context, queue string) (Stats, error)
	// Purge removes the messages that wait in the queue and returns their number. Messages that are
	// held, delayed or dead stay.
	Purge(ctx context.Context, queue string) (int, error)
}

// Auditor is a Broker that finds settings that are weaker than its adapter promises.
type Auditor interface {
	// Audit returns sentences for people, one for each finding. It changes nothing. The findings are:
	//
	//   - settings of the server or of the queue that are weaker than the adapter's own settings
	//   - missing parts of the queue
	//   - full dead letters
	//
	// If queue is "" it checks only the server. nil means that nothing was found. Returns [ErrNoQueue]
	// if the queue does not exist.
	Audit(ctx context.Context, queue string) ([]string, error)
}

// Locator is a Broker that can name the exchange and routing key of a queue. Events carry them.
type Locator interface {
	// Locate returns the exchange and the routing key to which a message for queue is published.
	Locate(queue string) (exchange, routingKey string)
}

// Finder is a Broker that can read, change and remove a waiting message by its id.
type Finder interface {
	// Find returns a message that is queued or delayed. At is its time, or zero if it waits for a
	// consumer. Returns [ErrNotFound] if no such message waits, or if a consumer holds it.
	Find(ctx context.Context, queue, id string) (Outgoing, error)
	// Delete removes the waiting message. Returns [ErrNotFound] if it does not exist.
	Delete(ctx context.Context, queue, id string) error
	// Update replaces the waiting message by o, which has the same ID. o.At may change its time.
	// Returns [ErrNotFound] if the message does not exist.
	Update(ctx context.Context, queue string, o Outgoing) error
}

// ErrNotFound reports that no waiting message has the id. A [Finder] returns it.
var ErrNotFound = errors.New("broker: message not found")

// ConnState is the state of a broker's connection.
type ConnState string

// The states of a connection.
const (
	Connected    ConnState = "connected"
	Disconnected ConnState = "disconnected"
	Blocked      ConnState = "blocked"
)

// Watcher is a Broker that reports the state of its connection.
type Watcher interface {
	// Watch calls fn with the current state and after each change, one call at a time, until stop is
	// called. err is the cause of a Disconnected or Blocked state. It holds no secret.
	Watch(fn func(s ConnState, err error)) (stop func())
}

// TxPublisher is a Broker whose messages are in a SQL database, or an outbox in front of another
// Broker.
type TxPublisher interface {
	// PublishTx stores messages in a transaction of the caller, all or none. Their consumers see them
	// if and only if the caller commits. It neither commits nor rolls back, and sends no notification
	// before the commit.
	//
	//   - Returns [ErrUnsupported] if t is a transaction of another database.
	//   - Returns [ErrNoQueue], [ErrMalformed] or [ErrTooLarge] as Publish does.
	//   - After each of these errors nothing was stored, and the caller can still commit t.
	//   - Other errors are those of the database. They may have ended t.
	//
	// A message whose (ID, Generation) is queued already is not stored again; that is a success.
	PublishTx(ctx context.Context, t tx.Tx, ms []Outgoing) error
}

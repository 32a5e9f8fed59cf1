package broker

import (
	"context"
	"errors"
	"time"
)

// The classes of errors an adapter returns. Compare with [errors.Is].
var (
	// ErrClosed: the Broker or Subscription was closed.
	ErrClosed = errors.New("broker: closed")
	// ErrUnavailable: there was no connection until ctx ended, and nothing was sent. Repeating is safe.
	ErrUnavailable = errors.New("broker: unavailable")
	// ErrIndeterminate: bytes may have been sent, no answer came. The message may or may not be queued; publishing the
	// same (ID, Generation) again loses nothing. Adapters that promise Dedupe drop it while the first is queued, delayed or
	// held; with others, and after the first was settled, it is a second message. See docs/unique.md.
	ErrIndeterminate = errors.New("broker: outcome unknown")
	// ErrBlocked: the broker takes no messages just now (a memory or disk alarm, a full queue), until ctx ended.
	ErrBlocked = errors.New("broker: blocked")
	// ErrNoQueue: no such queue; the message was not stored.
	ErrNoQueue = errors.New("broker: no such queue")
	// ErrTooLarge: body or headers are larger than the broker takes; found before anything is sent.
	ErrTooLarge = errors.New("broker: message too large")
	// ErrSettled: the delivery was settled before.
	ErrSettled = errors.New("broker: delivery settled already")
	// ErrLeaseLost: the broker took the message back and will hand it out again, or has.
	ErrLeaseLost = errors.New("broker: lease lost")
	// ErrMalformed: the message, or a name in it, is not one this adapter can carry.
	ErrMalformed = errors.New("broker: malformed message")
	// ErrUnsupported: neither the broker nor a fallback can do this.
	ErrUnsupported = errors.New("broker: not supported")
	// ErrAccess: the broker refused the credentials or the operation; waiting does not mend it.
	ErrAccess = errors.New("broker: access refused")
	// ErrTooMany: the broker allows no more consumers or channels than there are; waiting does not
	// mend it, but fewer queues in a process, or a higher limit. See docs/limits.md.
	ErrTooMany = errors.New("broker: too many consumers")
)

// Message is what a broker carries. Whoever holds it owns it until it hands it to Publish; from then on neither the caller
// nor the adapter changes it.
type Message struct {
	ID string // the task's id; a retry is a new Message with the same ID and the next Generation
	// Generation is 0 at submission. Each retry, snooze or parked copy adds 1, also a copy that an adapter makes in
	// Release. The pair (ID, Generation) names the message: a broker that can tell treats a repeated pair as one message.
	Generation  int
	ContentType string
	Headers     map[string]any    // of foreign formats and Raw; nil on the fast path. Values: string, []byte, bool, int64, float64
	Properties  map[string]string // native fields of foreign formats (content-encoding, correlation-id, reply-to, type, priority, expiration), verbatim; nil on the fast path
	Body        []byte
	Priority    int       // lower runs first; 100 is the middle, 0 the most urgent. A queue has one level unless declared with more
	Expires     time.Time // after it the broker may drop the message or bury it; zero: never. The consumer checks it too
}

// RetryRoom is by how many bytes the body of a later generation may exceed the MaxBody of an
// adapter or a program: a retry counts itself in its body, and what was taken once is not refused
// for that.
const RetryRoom = 1 << 10

// BodyLimit returns the largest body, in bytes, of a message of a generation; maxBody is that of
// generation 0.
func BodyLimit(maxBody, generation int) int {
	if generation > 0 {
		return maxBody + RetryRoom
	}
	return maxBody
}

// Broker distributes messages over named queues. A queue's name obeys the pattern of task.CheckName; any other is
// [ErrMalformed].
type Broker interface {
	// Publish puts m into queue. Nil means the broker has confirmed it: it survives what the broker's configuration
	// survives. Without a connection Publish waits till ctx ends, then returns [ErrUnavailable]; once bytes may have left it
	// returns [ErrIndeterminate] and does not send again. A queue that does not exist is [ErrNoQueue]. Publish owns m.
	// Concurrent calls may share one trip to the broker.
	Publish(ctx context.Context, queue string, m *Message) error
	// Subscribe opens a stream of deliveries from a queue, which is created when it does not exist and may be.
	Subscribe(ctx context.Context, queue string, o SubscribeOptions) (Subscription, error)
	// Close ends what is under way, gives back what subscriptions hold, and releases all resources. It is idempotent.
	Close(ctx context.Context) error
}

// SubscribeOptions tune a subscription. The zero value is usable.
type SubscribeOptions struct {
	// Prefetch is how many unsettled messages the subscription may hold, handed out or not. 0: no limit.
	Prefetch int
	// Lease is how long the broker waits for a sign of life before it hands a message to somebody else, where it has
	// leases; the adapter renews it. 0: the adapter's default, 30 s.
	Lease time.Duration
}

// Subscription is a pull on one queue. It outlives lost connections.
type Subscription interface {
	// Receive returns the next message, of those held the most urgent first. It waits through reconnects; it returns
	// ctx's error, [ErrClosed], or an error that waiting cannot mend ([ErrAccess]). A held message is returned even if ctx
	// is done.
	Receive(ctx context.Context) (Delivery, error)
	// Close stops the subscription. What was held but not handed out goes back without delay; what was handed out can
	// still be settled, until the Broker is closed. It is idempotent.
	Close(ctx context.Context) error
}

// Delivery is one message handed out once. It is settled exactly once, by Ack, Release or Bury; a second settlement is
// [ErrSettled], and one after the broker took the message back is [ErrLeaseLost]. After an error other than those two the
// delivery may be settled again. The adapter renews the lease until it is settled.
type Delivery interface {
	// Message returns the message; the same pointer each time. The caller must not change it.
	Message() *Message
	// Deliveries returns how often this Generation was handed out, 1 = first. (2, false) means that all the broker knows
	// is "not the first", and (1, false) that it knows nothing of it.
	Deliveries() (n int, exact bool)
	// Lost is closed when the broker took the message back: its lease or its channel is gone.
	Lost() <-chan struct{}
	// Ack removes the message. It may return before the broker has seen it; if that fails the message is seen again.
	Ack(ctx context.Context) error
	// Release gives the message back, to be seen again after the given time, never earlier. No failure is counted, but
	// Deliveries may rise. After longer than 0 it may become a copy with the next Generation.
	Release(ctx context.Context, after time.Duration) error
	// Bury moves the message, byte for byte, to the dead letters of its queue, with the Reason,
	// Stack, Attempts and At of d as [DeadLetterer.PutDead] takes them. Message and Queue of d are
	// not looked at. A full dead queue never refuses it.
	Bury(ctx context.Context, d Dead) error
}

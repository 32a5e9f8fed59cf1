package broker

import (
	"context"
	"errors"
	"time"
)

// The classes of errors that an adapter returns. Compare them with [errors.Is].
var (
	// ErrClosed: the Broker or the Subscription was closed.
	ErrClosed = errors.New("broker: closed")
	// ErrUnavailable: no connection existed until ctx ended, and nothing was sent. It is safe to
	// repeat the call.
	ErrUnavailable = errors.New("broker: unavailable")
	// ErrIndeterminate: the request may have been sent, and no answer arrived. The message may or may
	// not be in the queue.
	//
	// Publishing the same (ID, Generation) again cannot lose the message. An adapter that promises
	// Dedupe drops the second message while the first one is queued, delayed or held by a consumer.
	// With other adapters, or after the first message was settled, the queue gets a second message.
	// See docs/unique.md.
	ErrIndeterminate = errors.New("broker: outcome unknown")
	// ErrBlocked: the broker did not accept messages until ctx ended. The cause is a memory or disk
	// alarm, or a full queue.
	ErrBlocked = errors.New("broker: blocked")
	// ErrNoQueue: the queue does not exist. The message was not stored.
	ErrNoQueue = errors.New("broker: no such queue")
	// ErrTooLarge: the body or the headers are larger than the broker accepts. The adapter finds this
	// before it sends anything.
	ErrTooLarge = errors.New("broker: message too large")
	// ErrSettled: the delivery was settled before.
	ErrSettled = errors.New("broker: delivery settled already")
	// ErrLeaseLost: the broker took the message back. It delivers the message again, or has done so
	// already.
	ErrLeaseLost = errors.New("broker: lease lost")
	// ErrMalformed: this adapter cannot carry the message, or a name in the call is not valid.
	ErrMalformed = errors.New("broker: malformed message")
	// ErrUnsupported: neither the broker nor a fallback supports the operation.
	ErrUnsupported = errors.New("broker: not supported")
	// ErrAccess: the broker refused the credentials or the operation. Waiting does not help. A
	// consumer returns it at its start, and tries again if it was refused later.
	ErrAccess = errors.New("broker: access refused")
	// ErrTooMany: the broker allows no further consumers or channels. Waiting does not help. Subscribe
	// to fewer queues in one process, or raise the limit. See docs/limits.md.
	ErrTooMany = errors.New("broker: too many consumers")
)

// Message is one message of a queue. The caller owns it until it calls Publish. From then on
// neither the caller nor the adapter changes it.
type Message struct {
	ID string // the task's id; a retry is a new Message with the same ID and the next Generation
	// Generation is 0 when the task is submitted. Each retry, snooze or parked copy adds 1. A copy
	// that an adapter makes in Release adds 1 too. The pair (ID, Generation) names the message: a
	// broker that supports it treats a repeated pair as one message.
	Generation  int
	ContentType string
	// Headers are the headers of foreign formats and of Raw. Values are string, []byte, bool, int64 or
	// float64. nil for Swarmiji's own format.
	Headers map[string]any
	// Properties are native fields of foreign formats, unchanged: content-encoding, correlation-id,
	// reply-to, type, priority, expiration. nil for Swarmiji's own format.
	Properties map[string]string
	Body       []byte
	// Priority orders the messages of a queue: the lower number is delivered first. 0 is the most
	// urgent, 100 the middle. A queue has one level unless it is declared with more.
	Priority int
	// Key is the fairness key: a queue that was declared with Fair delivers in turns over the keys. At
	// most 255 bytes of UTF-8 without control characters. Other queues carry it and ignore it.
	Key string
	// Weight is the share of the message's key in the turns, 1 to 100. 0 means 1.
	Weight int
	// Expires is the time after which the broker may drop or dead-letter the message. The consumer
	// checks it too. Zero: never.
	Expires time.Time
}

// RetryRoom is the number of bytes by which the body of a later generation may exceed MaxBody. A
// retry adds its counters to the body. Without this allowance, a message that was accepted once
// could be refused when it is retried.
const RetryRoom = 1 << 10

// BodyLimit returns the size limit, in bytes, of the body of a message of the given generation.
// maxBody is the limit for generation 0. Later generations may be larger by [RetryRoom].
func BodyLimit(maxBody, generation int) int {
	if generation > 0 {
		return maxBody + RetryRoom
	}
	return maxBody
}

// Broker distributes messages over named queues. A queue name must match the pattern of
// task.CheckName. Methods return [ErrMalformed] for any other name.
type Broker interface {
	// Publish puts m into queue. nil means that the broker has confirmed the message: it is as durable
	// as the broker's configuration allows.
	//
	//   - Without a connection Publish waits until ctx ends and returns [ErrUnavailable].
	//   - Once a part of the request may have been sent, Publish does not send it again. If no answer
	//     arrives it returns [ErrIndeterminate].
	//   - Returns [ErrNoQueue] if the queue does not exist.
	//   - Publish owns m. Concurrent calls may share one round trip to the broker.
	Publish(ctx context.Context, queue string, m *Message) error
	// Subscribe opens a stream of deliveries from a queue. It creates a missing queue if the adapter's
	// configuration allows that.
	Subscribe(ctx context.Context, queue string, o SubscribeOptions) (Subscription, error)
	// Close ends the calls in progress, returns the messages that subscriptions hold to their queues,
	// and releases all resources. It is idempotent.
	Close(ctx context.Context) error
}

// SubscribeOptions tune a subscription. The zero value is usable.
type SubscribeOptions struct {
	// Prefetch limits the number of unsettled messages that the subscription holds, whether or not
	// Receive has returned them. 0: no limit. An adapter with lanes may hold up to four times as many
	// of a fair queue.
	Prefetch int
	// Lease is the time without a renewal after which the broker delivers a message again, on brokers
	// that have leases. The adapter renews the lease. Default: the adapter's, 30 s.
	Lease time.Duration
	// Bounds limit the messages that the subscription takes from a fair queue. The messages of all
	// consumers count, so give all consumers of a queue the same Bounds.
	//
	//   - A key at its limit is passed over. It comes back when a message of it is settled,
	//     released or lost, or when its time comes. No delivery is counted meanwhile.
	//   - Subscribe returns [ErrMalformed] if the queue is not fair, and [ErrUnsupported] if the
	//     broker cannot do this.
	Bounds Bounds
	// Floor is the share of the messages that come from less urgent priority levels while these and
	// more urgent ones have messages, 0 to 0.5. The less urgent levels share it. An empty level costs
	// nothing. 0: the most urgent message is always next.
	Floor float64
}

// Subscription receives the messages of one queue. It continues after a lost connection.
type Subscription interface {
	// Receive returns the next message. Of the messages that the subscription holds, the most urgent
	// comes first. It waits through reconnects.
	//
	// Receive returns ctx's error, [ErrClosed], or an error that waiting does not remove, such as
	// [ErrAccess]. A message that the subscription already holds is returned even if ctx is done.
	Receive(ctx context.Context) (Delivery, error)
	// Close stops the subscription. Messages that Receive has not returned yet go back to the queue
	// without delay. Messages that it has returned can still be settled until the Broker is closed.
	// Close is idempotent.
	Close(ctx context.Context) error
}

// Delivery is one delivery of a message to a consumer. The consumer settles it exactly once, by
// [Delivery.Ack], [Delivery.Release] or [Delivery.DeadLetter]. The adapter renews the lease until
// then.
//
// A second settlement returns [ErrSettled]. A settlement after the broker took the message back
// returns [ErrLeaseLost]. After any other error the delivery may be settled again.
type Delivery interface {
	// Message returns the message, the same pointer each time. The caller must not change it.
	Message() *Message
	// Deliveries returns how often this Generation was delivered; the first delivery is 1. (2, false)
	// means that the broker knows only "not the first". (1, false) means that the broker does not know
	// the number.
	Deliveries() (n int, exact bool)
	// Lost returns a channel that is closed when the broker has taken the message back, because its
	// lease ended or its channel was closed.
	Lost() <-chan struct{}
	// Ack removes the message from the queue. It may return before the broker has received the
	// acknowledgement. If the acknowledgement is lost, the message is delivered again.
	Ack(ctx context.Context) error
	// Release returns the message to the queue. It is delivered again after the given time, never
	// earlier. Release counts no failure, but Deliveries may rise. If after is longer than 0 the
	// message may become a copy with the next Generation.
	Release(ctx context.Context, after time.Duration) error
	// DeadLetter moves the message, unchanged, to the dead letters of its queue. It stores Reason,
	// Stack, Attempts and At of d as [DeadLetterer.PutDead] does, and ignores Message and Queue of d.
	// A full dead-letter queue never refuses the message.
	DeadLetter(ctx context.Context, d Dead) error
}

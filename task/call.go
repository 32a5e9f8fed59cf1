package task

import (
	"context"
	"errors"
	"maps"
	"time"

	"github.com/swarmiji/swarmiji/tx"
)

// Call describes one task to submit: its name, arguments and options. It is a value; a Submitter
// does not change it.
type Call struct {
	Name        string
	ID          ID // "": the producer chooses one
	Args        any
	Definition  *Metadata // metadata of the task's definition, read-only; nil: no metadata
	Meta        Metadata  // metadata of the call; overrides Definition
	Headers     map[string]string
	Correlation string
	Parent      ID // "": no parent
	Root        ID // "": the task is its own root
	Then, Else  []Link
	Member      *Membership // nil: the task is not in a group
	Conditions  *Conditions // read-only; nil: the task runs when the broker delivers it
	Unique      *Unique     // read-only; nil: each submission is sent
	Burst       *Burst      // read-only; nil: each submission runs
	OrderKey    string      // see [WithOrderKey]; "": no order
}

// MarshalJSON returns an error. Arguments, metadata and conditions would not come back as they
// were. To keep a call for later, store the values of which it is made, or submit it through an
// outbox (package outbox).
func (Call) MarshalJSON() ([]byte, error) { return nil, errMarshal }

// errMarshal refuses the encoding of a Call.
var errMarshal = errors.New("task: a Call cannot be encoded as JSON without losing data")

// Membership is the place of a task in a group.
type Membership struct {
	Group ID
	Index int   // from 0
	Size  int   // number of members; 0: not known yet
	Chord *Link // the task that follows the group
}

// Option sets something on a call or, given to [New], on a definition. [WithID] has no effect on a
// definition, since an id belongs to one call.
type Option func(*Call)

// WithID sets the task's id, so that a submission with an unknown outcome can be repeated.
//
// All submissions with one id are one task with one record and one result. A repeated submission
// while the first message is queued, delayed or held is dropped by the memory broker, Redis and
// NATS. RabbitMQ and hworker start it again. After the end of the task a repeated submission starts
// again; NATS drops it until 30 s after the first publish. With [WithUnique] a confirmed submission
// is not sent again.
func WithID(id ID) Option { return func(c *Call) { c.ID = id } }

// WithHeader adds a header.
func WithHeader(key, value string) Option {
	return func(c *Call) {
		h := maps.Clone(c.Headers) // the map may belong to other calls too
		if h == nil {
			h = make(map[string]string, 1)
		}
		h[key] = value
		c.Headers = h
	}
}

// WithCorrelation sets a text that is copied into the result.
func WithCorrelation(s string) Option { return func(c *Call) { c.Correlation = s } }

// WithOrderKey has an outbox publish the tasks with this key in the order of their submissions, see
// package outbox. The key is a text of at most 255 bytes, such as the number of a customer. The
// order is that of the publishes: consumers may run the tasks at the same time. Submissions without
// an outbox ignore the key. The key of a workflow's submission is that of its first steps. "": no
// order.
func WithOrderKey(key string) Option { return func(c *Call) { c.OrderKey = key } }

// WithMetadata sets the keys that m sets and overrides earlier values.
func WithMetadata(m Metadata) Option { return func(c *Call) { c.Meta.Overlay(&m) } }

// WithQueue sets the queue and overrides the router.
func WithQueue(name string) Option { return func(c *Call) { c.Meta.Queue = Set(name) } }

// WithMaxRetries sets how often the task may be retried. Negative: no limit.
func WithMaxRetries(n int) Option { return func(c *Call) { c.Meta.MaxRetries = Set(n) } }

// WithRetryDelay sets the delay before a retry that sets none of its own. 0: at once.
func WithRetryDelay(d time.Duration) Option { return func(c *Call) { c.Meta.RetryDelay = Set(d) } }

// WithRateLimit limits the starts per task name and consumer process: "N/s", "N/m" or "N/h". "": no
// limit. At most the starts of 100 ms happen at once. Tasks that wait hold no worker. See
// docs/limits.md.
func WithRateLimit(rate string) Option { return func(c *Call) { c.Meta.RateLimit = Set(rate) } }

// WithTimeLimit sets the hard time limit of an attempt. 0: no limit. At the limit the task fails
// with [ErrTimeLimit]. It fails at most a second later if its handler ignores its context and
// continues; see consumer.MaxStuck.
func WithTimeLimit(d time.Duration) Option { return func(c *Call) { c.Meta.TimeLimit = Set(d) } }

// WithSoftTimeLimit sets the time after which the handler's context is cancelled. 0: never.
func WithSoftTimeLimit(d time.Duration) Option {
	return func(c *Call) { c.Meta.SoftTimeLimit = Set(d) }
}

// WithIgnoreResult sets whether the result is dropped.
func WithIgnoreResult(ignore bool) Option { return func(c *Call) { c.Meta.IgnoreResult = Set(ignore) } }

// WithIdempotent sets when the task is acknowledged: after it ran (true: at least once) or before
// (false: at most once).
func WithIdempotent(yes bool) Option { return func(c *Call) { c.Meta.Idempotent = Set(yes) } }

// WithDeadLetter sets whether the task is dead-lettered when it fails for good (true, the default)
// or only recorded (false).
func WithDeadLetter(keep bool) Option { return func(c *Call) { c.Meta.DeadLetter = Set(keep) } }

// WithSerializer sets the content type of the arguments and the result.
func WithSerializer(contentType string) Option {
	return func(c *Call) { c.Meta.Serializer = Set(contentType) }
}

// WithCompression sets the compression of large arguments and results. "": no compression.
func WithCompression(name string) Option {
	return func(c *Call) { c.Meta.Compression = Set(name) }
}

// WithResultStore sets the name of the store that keeps the result.
func WithResultStore(name string) Option { return func(c *Call) { c.Meta.ResultStore = Set(name) } }

// WithResultTTL sets how long the result is kept.
func WithResultTTL(d time.Duration) Option { return func(c *Call) { c.Meta.ResultTTL = Set(d) } }

// WithPriority sets the priority. Lower runs first. Default: 100. The queue must have Levels
// (producer.Config.Queues, consumer.QueueConfig); otherwise Submit returns broker.ErrUnsupported.
func WithPriority(p int) Option { return func(c *Call) { c.Meta.Priority = Set(p) } }

// WithFairnessKey sets the fairness key, such as the number of a customer. A queue with Fair
// (producer.Config.Queues, consumer.QueueConfig) starts tasks in turns over the keys that have
// ready ones. So no key waits behind the backlog of another. See docs/fairness.md.
//
// The key has at most 255 bytes of UTF-8 without control characters. Tasks without a key share the
// key "". Other queues carry the key and ignore it. The broker sees the key, also of a sealed task.
func WithFairnessKey(key string) Option { return func(c *Call) { c.Meta.FairnessKey = Set(key) } }

// WithFairnessWeight sets the share of the task's key in the turns, 1 to 100. Default: 1. With 5
// the key starts five tasks while a key of weight 1 starts one. Each task's own weight counts for
// its turn.
func WithFairnessWeight(n int) Option { return func(c *Call) { c.Meta.FairnessWeight = Set(n) } }

// WithNotBefore sets the earliest start, by the broker's clock if it has one. The time of
// time.Now().Add(d) means the same as [WithDelay] of d.
func WithNotBefore(t time.Time) Option { return func(c *Call) { c.Meta.NotBefore = Set(t) } }

// WithDelay sets the earliest start to d from now. A task that is submitted at once starts d after
// it has reached the broker, even if the caller's clock is wrong.
func WithDelay(d time.Duration) Option {
	return func(c *Call) { c.Meta.NotBefore = Set(time.Now().Add(d)) }
}

// WithExpires sets the time after which the task no longer starts.
func WithExpires(t time.Time) Option { return func(c *Call) { c.Meta.Expires = Set(t) } }

// Submitter submits single tasks; a producer implements it. A nil error means that the broker has
// confirmed the task. With [WithUnique] it may instead have confirmed an earlier one, whose id the
// returned task has.
type Submitter interface {
	Submit(ctx context.Context, c Call) (Pending, error)
}

// TxSubmitter submits a task in a transaction of the caller; a producer implements it. A nil error
// means that the task is stored in the transaction. It exists if and only if the caller commits.
type TxSubmitter interface {
	SubmitTx(ctx context.Context, t tx.Tx, c Call) (Pending, error)
}

// BatchSubmitter submits many tasks at once. The pending tasks are in the order of the calls, nil
// for a refused task. The error, if not nil, holds the error of each call.
type BatchSubmitter interface {
	SubmitAll(ctx context.Context, calls []Call) ([]Pending, error)
}

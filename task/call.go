package task

import (
	"context"
	"maps"
	"time"
)

// Call is one task to submit: a name, arguments and what was said about it. It is a value; a Submitter does not change it.
type Call struct {
	Name        string
	ID          ID // "" lets the producer choose one
	Args        any
	Definition  *Metadata // of the task's definition; nil for none. It is read only
	Meta        Metadata  // given at the call; over Definition
	Headers     map[string]string
	Correlation string
	Parent      ID // "" for none
	Root        ID // "" means the task is its own root
	Then, Else  []Link
	Member      *Membership // nil for a task that is in no group
	Conditions  *Conditions // nil for a task that runs when the broker hands it out. They are read only
	Unique      *Unique     // nil for a task that is sent at each submission. It is read only
}

// Membership is a task's place in a group.
type Membership struct {
	Group ID
	Index int   // from 0
	Size  int   // of the group; 0: not known yet
	Chord *Link // what follows the group
}

// Option sets something on a call or, where it is given to [New], on a task's definition. Only metadata options make sense
// on a definition; New ignores the others' effect on identity (an id belongs to one call).
type Option func(*Call)

// WithID chooses the task's id, so that a submission whose outcome is unknown can be repeated.
//
// All submissions of one id are one task with one record and one result. The broker compares ids while the message is queued,
// delayed or held: then a repeated one is dropped in memory, Redis and NATS, and starts again on RabbitMQ and hworker. When the
// task is over, a repeated one starts again; NATS drops it until 30 s after the first was published. With [WithUnique] a
// submission that was confirmed is not sent again.
func WithID(id ID) Option { return func(c *Call) { c.ID = id } }

// WithHeader adds a free header.
func WithHeader(key, value string) Option {
	return func(c *Call) {
		h := maps.Clone(c.Headers) // never write into a map that another call shares
		if h == nil {
			h = make(map[string]string, 1)
		}
		h[key] = value
		c.Headers = h
	}
}

// WithCorrelation sets a text that is copied into the result.
func WithCorrelation(s string) Option { return func(c *Call) { c.Correlation = s } }

// WithMetadata lays m over what was set before.
func WithMetadata(m Metadata) Option { return func(c *Call) { c.Meta.Overlay(&m) } }

// WithQueue names the queue and overrides the router.
func WithQueue(name string) Option { return func(c *Call) { c.Meta.Queue = Set(name) } }

// WithMaxRetries sets how often the task may be retried; negative means no limit.
func WithMaxRetries(n int) Option { return func(c *Call) { c.Meta.MaxRetries = Set(n) } }

// WithRetryDelay sets the wait before a retry that names none of its own; 0 means at once.
func WithRetryDelay(d time.Duration) Option { return func(c *Call) { c.Meta.RetryDelay = Set(d) } }

// WithRateLimit sets "N/s", "N/m" or "N/h" per task name and consumer process; "" means no limit. There is no burst above what
// 100 ms give; tasks that have to wait hold no worker. See docs/limits.md.
func WithRateLimit(rate string) Option { return func(c *Call) { c.Meta.RateLimit = Set(rate) } }

// WithTimeLimit sets the hard limit of a run; 0 means none. The task then fails with [ErrTimeLimit], also if its handler ignores
// its context and goes on, see consumer.MaxStuck.
func WithTimeLimit(d time.Duration) Option { return func(c *Call) { c.Meta.TimeLimit = Set(d) } }

// WithSoftTimeLimit sets when a run's context is cancelled; 0 means never.
func WithSoftTimeLimit(d time.Duration) Option {
	return func(c *Call) { c.Meta.SoftTimeLimit = Set(d) }
}

// WithIgnoreResult says whether the result is dropped.
func WithIgnoreResult(ignore bool) Option { return func(c *Call) { c.Meta.IgnoreResult = Set(ignore) } }

// WithIdempotent says whether the task is acknowledged after its run (true: at least once) or before it (false: at most once).
func WithIdempotent(yes bool) Option { return func(c *Call) { c.Meta.Idempotent = Set(yes) } }

// WithDeadLetter says whether the task is kept among the dead letters when it fails for good (true, the default), or only in its
// record (false).
func WithDeadLetter(keep bool) Option { return func(c *Call) { c.Meta.DeadLetter = Set(keep) } }

// WithSerializer sets the content type in which arguments and result are written.
func WithSerializer(contentType string) Option {
	return func(c *Call) { c.Meta.Serializer = Set(contentType) }
}

// WithCompression names the way in which arguments and result are compressed when they are large; "" means not at all.
func WithCompression(name string) Option {
	return func(c *Call) { c.Meta.Compression = Set(name) }
}

// WithResultStore names the store that keeps the result.
func WithResultStore(name string) Option { return func(c *Call) { c.Meta.ResultStore = Set(name) } }

// WithResultTTL sets how long the result is kept.
func WithResultTTL(d time.Duration) Option { return func(c *Call) { c.Meta.ResultTTL = Set(d) } }

// WithPriority sets the priority; lower runs first, 100 is the middle.
func WithPriority(p int) Option { return func(c *Call) { c.Meta.Priority = Set(p) } }

// WithNotBefore sets the earliest moment the task may start, on the broker's clock where it has one.
// What time.Now().Add(d) returns means the same as [WithDelay] of d.
func WithNotBefore(t time.Time) Option { return func(c *Call) { c.Meta.NotBefore = Set(t) } }

// WithDelay sets the earliest start d from now: a task that is submitted at once starts d after it
// has reached the broker. A wrong clock of the caller changes nothing.
func WithDelay(d time.Duration) Option {
	return func(c *Call) { c.Meta.NotBefore = Set(time.Now().Add(d)) }
}

// WithExpires sets the moment after which the task is no longer started.
func WithExpires(t time.Time) Option { return func(c *Call) { c.Meta.Expires = Set(t) } }

// Submitter takes one call. Nil error means that the broker has confirmed the task, or, with [WithUnique], the earlier one whose
// id the answer has. A producer is one.
type Submitter interface {
	Submit(ctx context.Context, c Call) (Pending, error)
}

// BatchSubmitter takes many calls at once. The pending tasks are in the order of the calls; one whose task was refused is nil.
// The error, when not nil, tells for each call what became of it.
type BatchSubmitter interface {
	SubmitAll(ctx context.Context, calls []Call) ([]Pending, error)
}

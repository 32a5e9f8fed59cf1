package hworkerbroker

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/capability"
)

// Publish implements [broker.Broker]. It adds the job at the left of the list; the right end is
// next. It waits for the server and wakes the subscriptions of this process. A repeated (ID,
// Generation) is a second job. It takes b.mu, but not while it waits.
//
//   - The message or the queue name is invalid: ErrMalformed. The body is too large: ErrTooLarge.
//   - A message of generation 0 has an expiry: ErrUnsupported. A later copy may have one, because
//     some program has put it into its job.
//   - ctx ends without a connection: ErrUnavailable. After Close: ErrClosed.
//   - The job may have been added: ErrIndeterminate. It is not sent again.
func (b *Broker) Publish(ctx context.Context, queue string, m *broker.Message) error {
	k, payload, err := b.prepare(broker.Outgoing{Queue: queue, Message: m}, "")
	if err != nil {
		return err
	}
	if _, err := b.runInt(ctx, "publish", b.scripts.push, []string{k.jobs}, payload); err != nil {
		return err
	}
	b.wakeSubscriptions(queue)
	return nil
}

// prepare checks a message and returns its queue's keys and its payload. It sends nothing. uuid is
// passed to [encode]. It takes b.mu.
//
//   - o has a delay, or generation 0 and an expiry: ErrUnsupported.
//   - The queue name is invalid, or the message is nil or cannot be encoded: ErrMalformed.
//   - The body is larger than broker.BodyLimit allows: ErrTooLarge. After Close: ErrClosed.
func (b *Broker) prepare(o broker.Outgoing, uuid string) (keys, string, error) {
	k, err := keysOf(o.Queue)
	if err == nil {
		err = b.errIfClosed()
	}
	if err != nil {
		return keys{}, "", err
	}
	fail := func(err error) (keys, string, error) {
		return keys{}, "", fmt.Errorf("hworker publish to %q: %w", o.Queue, err)
	}
	m := o.Message
	switch {
	case m == nil:
		return fail(broker.ErrMalformed)
	case o.At.After(time.Now()):
		return fail(fmt.Errorf("a list cannot delay a job until %s: %w", o.At.UTC().Format(time.RFC3339), broker.ErrUnsupported))
	case !m.Expires.IsZero() && m.Generation == 0:
		return fail(fmt.Errorf("other programs on the queue would run an expired job: %w", broker.ErrUnsupported))
	case len(m.Body) > broker.BodyLimit(b.cfg.MaxBody, m.Generation):
		return fail(fmt.Errorf("body of %d bytes, limit %d: %w", len(m.Body), b.cfg.MaxBody, broker.ErrTooLarge))
	}
	payload, err := encode(m, uuid)
	if err != nil {
		return fail(err)
	}
	return k, payload, nil
}

// The limits of one call of a batch, in messages and approximately in bytes, because the server is
// blocked during it.
const (
	callMessages = 500
	callBytes    = 1 << 20
)

// batchCall holds the messages that are sent to one queue in one call.
type batchCall struct {
	keys     keys
	payloads []any
	indexes  []int // in the batch
	bytes    int
}

// PublishBatch implements [broker.BatchPublisher]. The messages of one queue keep their order. They
// are sent in calls of up to 500 messages and about 1 MiB, one call after the other. It waits for
// the server and wakes the subscriptions of this process. It takes b.mu, but not while it waits.
//
// If a call fails, each of its messages has the error, and the other calls are still sent. An
// invalid message is not sent and has its error, one of those of Publish. Returns nil if all were
// stored, otherwise a [broker.BatchError] with the error of each message.
func (b *Broker) PublishBatch(ctx context.Context, ms []broker.Outgoing) error {
	errs := make([]error, len(ms))
	failed := false
	trips := make(map[string]*batchCall)
	send := func(t *batchCall) {
		_, err := b.runInt(ctx, "publish", b.scripts.push, []string{t.keys.jobs}, t.payloads...)
		for _, i := range t.indexes {
			errs[i] = err
		}
		failed = failed || err != nil
		b.wakeSubscriptions(t.keys.queue)
		delete(trips, t.keys.queue)
	}
	for i, o := range ms {
		k, payload, err := b.prepare(o, "")
		if err != nil {
			errs[i], failed = err, true
			continue
		}
		t := trips[o.Queue]
		if t == nil {
			t = &batchCall{keys: k}
			trips[o.Queue] = t
		}
		t.payloads, t.indexes = append(t.payloads, payload), append(t.indexes, i)
		if t.bytes += len(payload); len(t.indexes) == callMessages || t.bytes >= callBytes {
			send(t)
		}
	}
	for _, t := range trips {
		send(t)
	}
	if failed {
		return &broker.BatchError{Errs: errs}
	}
	return nil
}

// Retry implements [broker.Retrier]. It is hworker's Retry: one script ends the job and adds its
// successor at the back of the queue, so that it runs after all others. The successor has the uuid
// of the job. If another program has written the job, the successor also has its bytes, with the
// number of attempts beside the uuid.
//
// It waits for the server, logs next.Reason if that is set, and wakes the subscriptions. Returns
// ErrUnsupported if d is not a delivery of this Broker, and the errors of prepare and settle.
// Returns ErrLeaseLost, with nothing published, if the job is no longer held.
func (b *Broker) Retry(ctx context.Context, d broker.Delivery, next broker.Outgoing) error {
	own, ok := capability.As[*delivery](d)
	if !ok || own.sub.broker != b {
		return fmt.Errorf("hworker retry: the delivery belongs to another broker: %w", broker.ErrUnsupported)
	}
	uuid, _, _ := split(own.payload) // a received payload can be split
	uuid, _, _ = strings.Cut(uuid, uuidExtras)
	k, payload, err := b.prepare(next, uuid)
	if err != nil {
		return err
	}
	if err := own.settle(ctx, "replace", k.jobs, payload); err != nil {
		return err
	}
	if next.Reason != "" {
		b.log(slog.LevelWarn, own.sub.keys.queue, fmt.Sprintf("Retry: %.1000s", next.Reason), slog.String("task_id", own.id()))
	}
	b.wakeSubscriptions(next.Queue)
	return nil
}

// wakeSubscriptions makes the subscriptions of this process poll the queue at once. It takes b.mu.
func (b *Broker) wakeSubscriptions(queue string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for s := range b.subs {
		if s.keys.queue == queue {
			s.wake()
		}
	}
}

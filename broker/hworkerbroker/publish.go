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

// Publish implements [broker.Broker]: LPUSH, where the right end is next. A message with an expiry is refused, unless it is
// the copy of one that some program has put into its job.
func (b *Broker) Publish(ctx context.Context, queue string, m *broker.Message) error {
	k, payload, err := b.prepare(broker.Outgoing{Queue: queue, Message: m}, "")
	if err != nil {
		return err
	}
	if _, err := b.number(ctx, "publish", b.scripts.push, []string{k.jobs}, payload); err != nil {
		return err
	}
	b.wake(queue)
	return nil
}

// prepare checks a message and makes its payload; uuid is as [encode] takes it.
func (b *Broker) prepare(o broker.Outgoing, uuid string) (keys, string, error) {
	k, err := keysOf(o.Queue)
	if err == nil {
		err = b.open()
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
		return fail(fmt.Errorf("a list has no times, so that nothing can wait for %s: %w", o.At.UTC().Format(time.RFC3339), broker.ErrUnsupported))
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

// A trip of a batch carries at most so many messages and about so many bytes: the server does nothing else meanwhile.
const (
	tripMessages = 500
	tripBytes    = 1 << 20
)

// trip is what goes to one queue in one call.
type trip struct {
	keys     keys
	payloads []any
	indexes  []int // in the batch
	bytes    int
}

// PublishBatch implements [broker.BatchPublisher]. The messages of one queue keep their order.
func (b *Broker) PublishBatch(ctx context.Context, ms []broker.Outgoing) error {
	errs := make([]error, len(ms))
	failed := false
	trips := make(map[string]*trip)
	send := func(t *trip) {
		_, err := b.number(ctx, "publish", b.scripts.push, []string{t.keys.jobs}, t.payloads...)
		for _, i := range t.indexes {
			errs[i] = err
		}
		failed = failed || err != nil
		b.wake(t.keys.queue)
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
			t = &trip{keys: k}
			trips[o.Queue] = t
		}
		t.payloads, t.indexes = append(t.payloads, payload), append(t.indexes, i)
		if t.bytes += len(payload); len(t.indexes) == tripMessages || t.bytes >= tripBytes {
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

// Retry implements [broker.Retrier]. It is hworker's Retry: one script ends the job and puts its
// successor at the back of the queue, so that it runs after all others. The successor has the same
// uuid; a job of another program has the same bytes too, and the number of tries beside the uuid.
func (b *Broker) Retry(ctx context.Context, d broker.Delivery, next broker.Outgoing) error {
	own, ok := capability.As[*delivery](d)
	if !ok || own.sub.broker != b {
		return fmt.Errorf("hworker retry of a %T, which is not of this broker: %w", d, broker.ErrUnsupported)
	}
	uuid, _, _ := split(own.payload) // what could be received can be split
	uuid, _, _ = strings.Cut(uuid, beside)
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
	b.wake(next.Queue)
	return nil
}

// wake tells the subscriptions of this process that a queue has something, so that they need not wait until they look.
func (b *Broker) wake(queue string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for s := range b.subs {
		if s.keys.queue == queue {
			s.look()
		}
	}
}

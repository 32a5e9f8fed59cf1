package amqpbroker

import (
	"context"
	"fmt"
	"regexp"
	"strings"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/amqpconn"
)

// Audit implements [broker.Auditor]: it looks for queues that were declared with other settings, and for what was deleted.
func (b *Broker) Audit(ctx context.Context, queue string) ([]string, error) {
	if queue == "" { // all that matters is said of each queue
		return nil, nil
	}
	st, err := b.Stats(ctx, queue) // also learns the levels
	if err != nil {
		return nil, err
	}
	var notes []string
	if full := broker.AuditDead(queue, st.Dead, b.cfg.DeadMax); full != "" {
		notes = append(notes, full)
	}
	type part struct {
		name string
		args amqp.Table
		lost string // what it means that it is missing
	}
	var parts []part
	consumed, err := b.consumed(ctx, queue)
	if err != nil {
		return notes, wrap(err, "audit", queue)
	}
	if consumed || st.Dead > 0 { // else there need not be a dead queue yet
		parts = append(parts, part{b.names.dead(queue), b.deadArgs(), "tasks that the server gives up are lost"})
	}
	parts = append(parts,
		part{b.names.undeliverable(), b.queueArgs(nil), "delayed tasks whose queue is deleted are lost"},
		part{b.names.acks(), b.acks.log.args(), "tasks that run at most once do not start if it cannot be made"},
	)
	for _, name := range b.all(queue) {
		parts = append(parts, part{name, b.workArgs(queue), "its tasks are refused"})
	}
	for _, part := range parts {
		note, err := b.auditQueue(ctx, b.names.dead(queue), part.name, part.args, part.lost)
		if err != nil {
			return notes, wrap(err, "audit", queue)
		}
		if note != "" {
			notes = append(notes, note)
		}
	}
	missing, err := b.missing(ctx, func(ch *amqp.Channel) error {
		return ch.ExchangeDeclarePassive(b.names.deliver(), amqp.ExchangeTopic, true, false, false, false, nil)
	})
	if missing {
		notes = append(notes, fmt.Sprintf("amqp: the exchange %s is missing; delayed tasks do not come back; declare the queue anew", b.names.deliver()))
	}
	return notes, wrap(err, "audit", queue)
}

// consumed reports whether anybody consumes from a queue.
func (b *Broker) consumed(ctx context.Context, queue string) (bool, error) {
	n := 0
	err := b.retry(ctx, func(sess *amqpconn.Session) error {
		return sess.Do(ctx, func(ch *amqp.Channel) error {
			q, err := ch.QueueDeclarePassive(b.names.work(queue), true, false, false, false, nil)
			n = q.Consumers
			return err
		})
	})
	return n > 0, err
}

// deadUnbounded reports whether a dead queue is one of those that earlier versions have declared:
// as ours, but without bounds.
func (b *Broker) deadUnbounded(ctx context.Context, name string) bool {
	var difference error
	err := b.retry(ctx, func(sess *amqpconn.Session) (err error) {
		difference, err = b.declareOrFind(ctx, sess, name, b.unboundedDeadArgs())
		return err
	})
	return err == nil && difference == nil
}

// deadPolicy is the command that bounds the dead queues of the namespace. The arguments of a queue
// that exists cannot be changed.
func (b *Broker) deadPolicy() string {
	var keys []string
	if b.cfg.DeadTTL > 0 {
		keys = append(keys, fmt.Sprintf(`"message-ttl":%d`, b.cfg.DeadTTL.Milliseconds()))
	}
	if b.cfg.DeadMax > 0 {
		keys = append(keys, fmt.Sprintf(`"max-length":%d,"overflow":"drop-head"`, b.cfg.DeadMax))
	}
	return fmt.Sprintf(`rabbitmqctl set_policy --apply-to queues swj-%s-dead '^swj\.%s\.dead\.' '{%s}'`,
		b.cfg.Namespace, regexp.QuoteMeta(b.cfg.Namespace), strings.Join(keys, ","))
}

// auditQueue compares an AMQP queue with what the adapter would declare. Declaring what exists as it is changes nothing.
func (b *Broker) auditQueue(ctx context.Context, dead, name string, args amqp.Table, lost string) (note string, err error) {
	missing, err := b.missing(ctx, func(ch *amqp.Channel) error {
		_, err := ch.QueueDeclarePassive(name, true, false, false, false, nil)
		return err
	})
	switch {
	case err != nil:
		return "", err
	case missing:
		return fmt.Sprintf("amqp: the queue %s is missing; %s; declare the queue anew", name, lost), nil
	}
	var difference error
	err = b.retry(ctx, func(sess *amqpconn.Session) (err error) {
		difference, err = b.declareOrFind(ctx, sess, name, args)
		return err
	})
	if err != nil || difference == nil {
		return "", err
	}
	if name == dead && b.deadUnbounded(ctx, name) {
		return fmt.Sprintf("amqp: the queue %s was declared without bounds; unless a policy bounds it already, set one: %s", name, b.deadPolicy()), nil
	}
	return fmt.Sprintf("amqp: the queue %s was declared with other settings, which may be weaker: %v", name, difference), nil
}

// missing calls fn, which asks for something, and reports whether there is no such thing.
func (b *Broker) missing(ctx context.Context, fn func(ch *amqp.Channel) error) (bool, error) {
	err := b.retry(ctx, func(sess *amqpconn.Session) error { return sess.Do(ctx, fn) })
	if amqpconn.IsNotFound(err) {
		return true, nil
	}
	return false, err
}

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

// Audit implements [broker.Auditor]. It returns a sentence for each missing queue or exchange of
// queue, and for each AMQP queue that was declared with other settings. One more sentence tells
// that the dead letters are full. It changes nothing on the server. For "" it returns nil, because
// every check belongs to a queue.
//
// The dead queue is checked only if a process consumes from queue or dead letters exist. Audit
// waits for the server until ctx ends. It returns the errors of Stats, for example ErrNoQueue.
// After a later error it returns the sentences found so far with the error.
func (b *Broker) Audit(ctx context.Context, queue string) ([]string, error) {
	if queue == "" { // the server alone is not checked
		return nil, nil
	}
	st, err := b.Stats(ctx, queue) // also loads the levels
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
		lost string // the consequence if it is missing
	}
	var parts []part
	consumed, err := b.hasConsumers(ctx, queue)
	if err != nil {
		return notes, wrap(err, "audit", queue)
	}
	if consumed || st.Dead > 0 { // otherwise the dead queue need not exist yet
		parts = append(parts, part{b.names.dead(queue), b.deadArgs(), "tasks that the server dead-letters are lost"})
	}
	parts = append(parts,
		part{b.delays.Undeliverable(), b.queueArgs(nil), "delayed tasks whose queue is deleted are lost"},
		part{b.names.acks(), b.acks.log.args(), "tasks that run at most once do not start if it cannot be created"},
	)
	for _, name := range b.amqpQueues(queue) {
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
	missing, err := b.con.Missing(ctx, func(ch *amqp.Channel) error {
		return ch.ExchangeDeclarePassive(b.delays.Deliver(), amqp.ExchangeTopic, true, false, false, false, nil)
	})
	if missing {
		notes = append(notes, fmt.Sprintf("amqp: the exchange %s is missing; delayed tasks are not delivered; declare the queue again", b.delays.Deliver()))
	}
	return notes, wrap(err, "audit", queue)
}

// hasConsumers reports whether any process consumes from queue. It asks the server for the plain
// AMQP queue, not for those of other priority levels, and waits for the answer. Returns the
// server's "not found" if that AMQP queue does not exist.
func (b *Broker) hasConsumers(ctx context.Context, queue string) (bool, error) {
	n := 0
	err := b.con.Retry(ctx, func(sess *amqpconn.Session) error {
		return sess.Do(ctx, func(ch *amqp.Channel) error {
			q, err := amqpconn.Numbers(ch, b.names.work(queue))
			n = q.Consumers
			return err
		})
	})
	if err != nil {
		return false, err // fn may still run after the end of ctx, so n is not read
	}
	return n > 0, nil
}

// isUnboundedDead reports whether the dead queue has the settings of earlier versions, which set
// no limits of age and number. It returns false if the server cannot be asked. It waits for the
// server.
func (b *Broker) isUnboundedDead(ctx context.Context, name string) bool {
	var difference error
	err := b.con.Retry(ctx, func(sess *amqpconn.Session) (err error) {
		difference, err = sess.DeclareOrFind(ctx, name, b.unboundedDeadArgs())
		return err
	})
	return err == nil && difference == nil
}

// deadPolicyCommand returns the rabbitmqctl command that limits the dead queues of the namespace by
// age and number. A limit that is switched off in the Config is left out. A policy is needed
// because the arguments of an existing queue cannot be changed.
func (b *Broker) deadPolicyCommand() string {
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

// auditQueue compares the AMQP queue name with args, the arguments that the adapter would declare.
// It returns a sentence for people if the queue is missing or has other settings, "" otherwise.
// Other errors of the server are returned with "".
//
// lost is the consequence of a missing queue, for the sentence. dead is the name of the dead queue:
// if name is that queue and has no limits, the sentence holds the command that sets them. The
// redeclaration changes nothing on the server. It waits for the server.
func (b *Broker) auditQueue(ctx context.Context, dead, name string, args amqp.Table, lost string) (note string, err error) {
	missing, err := b.con.Missing(ctx, func(ch *amqp.Channel) error {
		_, err := ch.QueueDeclarePassive(name, true, false, false, false, nil)
		return err
	})
	switch {
	case err != nil:
		return "", err
	case missing:
		return fmt.Sprintf("amqp: the queue %s is missing; %s; declare the queue again", name, lost), nil
	}
	var difference error
	err = b.con.Retry(ctx, func(sess *amqpconn.Session) (err error) {
		difference, err = sess.DeclareOrFind(ctx, name, args)
		return err
	})
	if err != nil || difference == nil {
		return "", err
	}
	if name == dead && b.isUnboundedDead(ctx, name) {
		return fmt.Sprintf("amqp: the queue %s was declared without bounds; unless a policy bounds it already, set one: %s", name, b.deadPolicyCommand()), nil
	}
	return fmt.Sprintf("amqp: the queue %s was declared with other settings, which may be weaker: %v", name, difference), nil
}

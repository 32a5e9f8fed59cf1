package sqlbroker

import (
	"context"
	"fmt"
	"slices"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/capability"
	"github.com/swarmiji/swarmiji/internal/sqlconn"
)

// kind is a kind of settlement. The values are bits.
type kind uint8

const (
	acked kind = 1 << iota
	released
	deadLettered
	replaced
	kept // settles nothing: it renews the lease and makes the claim durable
)

// settlement is one settlement of a delivery.
type settlement struct {
	d     *delivery
	kind  kind
	after int64       // released: the delay in microseconds
	dead  broker.Dead // deadLettered: its texts
	next  row         // replaced: the successor
}

// keyAnd returns keyColumns followed by further columns. The parameters of a batch's statement have
// this order.
func keyAnd(columns ...string) []string { return append(slices.Clip(keyColumns), columns...) }

// releaseColumns returns the columns of texts.release: key, delay, and the number to subtract from
// the deliveries.
func releaseColumns() []string { return keyAnd("after bigint", "back bigint") }

// renewColumns returns the columns of texts.renew: key and lease.
func renewColumns() []string { return keyAnd("lease bigint") }

// retryColumns returns the columns of texts.retry for a successor in a fair queue or another one:
// the key of the delivery, and the successor.
func retryColumns(fair bool) []string { return keyAnd(insertColumns(fair)...) }

// deadLetterColumns returns the columns of texts.dead: key, and the texts of the dead letter.
func deadLetterColumns() []string { return keyAnd(deadColumns...) }

// settlementSize returns the approximate size of a settlement, in bytes.
func settlementSize(e *sqlconn.Entry[settlement]) int {
	if e.V.kind == replaced {
		return fixedSize + len(e.V.next.m.Body) + len(e.V.next.meta)
	}
	return fixedSize + len(e.V.dead.Reason) + len(e.V.dead.Stack)
}

// transaction returns the method that runs a transaction for the settlements es. This is Single if
// PostgreSQL needs only one statement for them, because all are of one kind, and their successors
// go to one table. Otherwise it is Update.
func (s *subscription) transaction(es []*sqlconn.Entry[settlement]) sqlconn.Transaction {
	for _, e := range es {
		if e.V.kind != es[0].V.kind || e.V.kind == replaced && e.V.next.q.text != es[0].V.next.q.text {
			return s.b.conn.Update
		}
	}
	if s.b.postgres() {
		return s.b.conn.Single
	}
	return s.b.conn.Update
}

// settle executes the settlements es in tx, one statement for each kind on PostgreSQL. It sets the
// error of each: nil, or that of notHeldError if its message is not held under its token. It
// notifies the consumers of queues that get a released or retried message, and those of s if they
// may use bounds. Returns errors of the database, for which all of es failed. It is the send
// function of the batcher of settlements. It takes s.mu.
func (s *subscription) settle(ctx context.Context, tx *sqlconn.Tx, es []*sqlconn.Entry[settlement]) error {
	text, next := s.q.text, func(v *settlement) []any { return v.next.values() }
	for _, k := range []struct {
		kind    kind
		query   string
		columns []string
		values  func(v *settlement) []any
	}{
		{acked, text.ack, keyColumns, func(*settlement) []any { return nil }},
		{released, text.release, releaseColumns(), func(v *settlement) []any { return []any{v.after, int64(0)} }},
		{deadLettered, text.dead, deadLetterColumns(), func(v *settlement) []any {
			return []any{sqlconn.Micros(v.dead.At), []byte(v.dead.Reason), []byte(v.dead.Stack), int64(v.dead.Attempts)}
		}},
		{replaced, text.retry, retryColumns(text.fair), next},
		{replaced, text.retryOther, retryColumns(!text.fair), next},
		{kept, text.renew, renewColumns(), func(*settlement) []any { return []any{s.lease.Microseconds()} }},
	} {
		var some []*sqlconn.Entry[settlement]
		var rows [][]any
		for _, e := range es {
			if e.V.kind == k.kind && (k.kind != replaced || (e.V.next.q.text == text) == (k.query == text.retry)) {
				some, rows = append(some, e), append(rows, append(e.V.d.key(), k.values(&e.V)...))
			}
		}
		if len(some) == 0 {
			continue
		}
		hit, err := s.settleKind(ctx, tx, k.kind, k.query, k.columns, rows)
		if err != nil {
			return err
		}
		for i, e := range some {
			e.Err = nil
			if !hit[i] {
				e.Err = e.V.d.notHeldError(k.kind, e.MaybeSent)
				continue
			}
			if k.kind == replaced {
				tx.Notify(e.V.next.q.topic)
			}
			if k.kind == released || s.q.inUse.Load() && k.kind != kept {
				tx.Notify(s.q.topic)
			}
		}
	}
	return nil
}

// settleKind executes settlements of one kind in tx. It returns for each whether the message was
// held, which means that the settlement took effect. On SQLite a dead letter or a retry takes two
// statements. Returns the first error of the database.
func (s *subscription) settleKind(ctx context.Context, tx *sqlconn.Tx, k kind, query string, columns []string, rows [][]any) ([]bool, error) {
	b, text := s.b, s.q.text
	if b.postgres() || k == acked || k == released {
		return b.each(ctx, tx, query, columns, rows)
	}
	hit := make([]bool, len(rows))
	for i, r := range rows {
		key, rest := r[:len(keyColumns)], r[len(keyColumns):]
		steps := []struct {
			query string
			args  []any
		}{{text.ack, key}, {query, rest}}
		if k == deadLettered {
			steps[0].query, steps[0].args = text.dead, r
			steps[1].query, steps[1].args = text.ack, key
		}
		for _, step := range steps {
			n, err := tx.Exec(ctx, step.query, step.args...)
			if err != nil {
				return nil, err
			}
			if hit[i] = hit[i] || n > 0; !hit[i] {
				break
			}
		}
	}
	return hit, nil
}

// Retry implements [broker.Retrier]. One transaction removes the message of d and stores next, in
// any queue of the same database. It waits for the commit. Returns ErrUnsupported if d is not a
// delivery of this Broker. Its other errors are those of prepare and await.
func (b *Broker) Retry(ctx context.Context, d broker.Delivery, next broker.Outgoing) error {
	own, ok := capability.As[*delivery](d)
	if !ok || own.sub.b != b {
		return fmt.Errorf("sql retry: %w: the delivery belongs to another broker", broker.ErrUnsupported)
	}
	r, err := b.prepare(ctx, next)
	if err != nil {
		return wrap(err, "retry into", next.Queue)
	}
	return own.await(ctx, settlement{d: own, kind: replaced, next: r}, "retry into")
}

package sqlbroker

import (
	"context"
	"errors"
	"math"
	"strings"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/sqlconn"
)

// Plans returns the database's plans of the statements that run for each message, by name.
func Plans(ctx context.Context, b *Broker) (map[string]string, error) {
	key := []any{[]int64{1}, []string{"a"}, []int64{0}, []int64{1}}
	statements := map[string]statement{
		"retry":   {b.text.retry, append(key[:4:4], []int64{1}, []int64{0}, []int64{0}, []int64{1}, []string{"a"}, []int64{1}, []int64{1}, []int64{0}, []string{""}, [][]byte{nil}, [][]byte{{}})},
		"dead":    {b.text.dead, append(key[:4:4], []int64{1}, [][]byte{{}}, [][]byte{{}}, []int64{1})},
		"claim":   {b.text.claim, []any{1, []int64{0, 1}, []int64{0, 0}, []int64{0, 0}, 10, 1000, 1}},
		"ack":     {b.text.ack, key},
		"release": {b.text.release, append(key[:4:4], []int64{0}, []int64{0})},
		"renew":   {b.text.renew, append(key[:4:4], []int64{1})},
		"find":    {b.text.find, []any{1, "a"}},
		"recover": {b.text.recover, []any{1, 1, 10}},
	}
	for name, s := range fairStatements(b, key) {
		statements[name] = s
	}
	explain := "EXPLAIN "
	if !b.postgres() {
		explain = "EXPLAIN QUERY PLAN "
		delete(statements, "retry") // it is ack and insert
		for name, s := range statements {
			if strings.HasPrefix(name, "fair ") {
				continue
			}
			args := make([]any, 0, len(s.args))
			for range strings.Count(s.query, "$") {
				args = append(args, 1)
			}
			s.args = args[:min(len(args), map[string]int{"claim": 5, "ack": 4, "release": 6, "renew": 5, "find": 2, "recover": 3, "dead": 8}[name])]
			statements[name] = s
		}
	}
	plans := make(map[string]string)
	for name, s := range statements {
		err := b.view(ctx, func(ctx context.Context, tx *sqlconn.Tx) error {
			rows, err := tx.Query(ctx, explain+s.query, s.args...)
			if err != nil {
				return err
			}
			var lines []string
			for rows.Next() {
				var line string
				var a, b, c int64
				if tx.Dialect() == sqlconn.SQLite {
					err = rows.Scan(&a, &b, &c, &line)
				} else {
					err = rows.Scan(&line)
				}
				if err != nil {
					return err
				}
				lines = append(lines, line)
			}
			plans[name] = strings.Join(lines, "\n")
			return errors.Join(rows.Err(), rows.Close())
		})
		if err != nil {
			return nil, err
		}
	}
	return plans, nil
}

// statement is a statement with arguments.
type statement struct {
	query string
	args  []any
}

// fairStatements returns the statements for the messages of fair queues. key are the arguments for
// the key columns on PostgreSQL.
func fairStatements(b *Broker, key []any) map[string]statement {
	t := b.fairText
	all := map[string]statement{
		"fair find": {t.find, []any{-1, "a"}}, "fair promote": {t.promote, []any{-1, 10}},
		"fair keys": {t.keys, []any{-1, 0, "", afterKeys(), 10}}, "fair claim": {t.claim, []any{-1, 0, "a", 0, 0, 10, 1000, 1, false}},
		"fair claimRows": {t.claimRows, []any{-1, 0, "[1]", 1000, 1, false}}, "fair recover": {t.recover, []any{-1, 1, 10}},
		"fair ack": {t.ack, []any{-1, "a", 0, 1}}, "fair release": {t.release, []any{-1, "a", 0, 1, 0, 0}},
		"fair bound keys": {t.boundKeys, []any{-1, 0, "", afterKeys(), 10, true}}, "fair bound of": {t.boundOf, []any{-1, "a"}},
	}
	if b.postgres() {
		delete(all, "fair claimRows")
		one, text := []int64{0}, []string{"a"}
		all["fair keys"] = statement{t.keys, []any{-1, one, []string{""}, []string{afterKeys()}, 10}}
		all["fair claim"] = statement{t.claim, []any{-1, text, one, one, 0, 1000, 1, one, []string{"(0,1)"}, text, false}}
		all["fair bound keys"] = statement{t.boundKeys, []any{-1, one, []string{""}, []string{afterKeys()}, 10, true}}
		all["fair bound claim"] = statement{t.boundClaim, []any{-1, text, one, one, 0, 1000, 1, one, one, one, one, 0, 0, 0}}
		delete(all, "fair bound of")
		all["fair recover"] = statement{t.recover, []any{-1, 1, 10, 0, text}}
		all["fair ack"] = statement{t.ack, key}
		all["fair release"] = statement{t.release, append(key[:4:4], one, one)}
	}
	return all
}

// StorePlain stores a message in a queue by the statement for queues that are not fair, as a
// version without fair queues does.
func StorePlain(ctx context.Context, b *Broker, name string, m *broker.Message) error {
	q, err := b.queue(ctx, name)
	if err != nil {
		return err
	}
	r := b.row(&queue{id: q.id, text: b.text}, m, time.Time{}, nil)
	return b.update(ctx, func(ctx context.Context, tx *sqlconn.Tx) error {
		_, err := b.each(ctx, tx, b.text.insert, plainColumns, [][]any{r.values()})
		return err
	})
}

// Peek reads whether a message of the queue can be claimed now, and the time until the first can.
func Peek(ctx context.Context, b *Broker, name string) (ready bool, wake time.Duration, err error) {
	q, err := b.queue(ctx, name)
	if err != nil {
		return false, 0, err
	}
	p := &peek{queue: q}
	for range q.count() {
		p.from = append(p.from, math.MinInt64)
	}
	err = b.view(ctx, func(ctx context.Context, tx *sqlconn.Tx) error { return b.peekIn(ctx, tx, p) })
	return p.ready, p.wake, err
}

// BeginRenewal makes the subscription of d, whose claim is not durable yet, renew its leases until
// end is called.
func BeginRenewal(d broker.Delivery) (end func()) {
	s := d.(*delivery).sub
	s.renewing <- struct{}{}
	s.mu.Lock()
	s.durable = time.Time{}
	s.mu.Unlock()
	return func() { <-s.renewing }
}

// AllFair makes the Broker create each queue as a fair one.
func AllFair(b *Broker) { b.text.addQueue = b.fairText.addQueue }

// Keys returns the number of keys that the tables of fair queues have for a queue, with those of
// used rates.
func Keys(ctx context.Context, b *Broker, name string) (n int, err error) {
	q, err := b.queue(ctx, name)
	if err != nil {
		return 0, err
	}
	err = b.view(ctx, func(ctx context.Context, tx *sqlconn.Tx) error {
		return tx.Row(ctx, "SELECT count(*) FROM (SELECT key FROM "+fairTable+" WHERE queue = $1 UNION SELECT key FROM "+
			boundTable+" WHERE queue = $1 AND NOT whole) AS k", q.id).Scan(&n)
	})
	return n, err
}

// Recover looks for the messages of the claim of d, of a fair queue, as after a lost answer. It
// returns their ids.
func Recover(ctx context.Context, d broker.Delivery) (ids []string, err error) {
	own := d.(*delivery)
	f := fetcher{s: own.sub, ring: newRing(own.sub.q.turns)}
	c := &claim{token: own.token, picks: []pick{{level: int64(own.level), key: own.message.Key}}}
	err = own.sub.b.view(ctx, func(ctx context.Context, tx *sqlconn.Tx) error {
		rows, err := f.lookFor(ctx, tx, c)
		ids = nil
		for _, r := range rows {
			ids = append(ids, *r.id)
		}
		return err
	})
	return ids, err
}

// WakeOf reads the keys of a fair queue, as a consumer that finds none. It returns the time after
// which the consumer would look again, 0 for that of its polls.
func WakeOf(ctx context.Context, b *Broker, name string) (time.Duration, error) {
	q, err := b.queue(ctx, name)
	if err != nil {
		return 0, err
	}
	f, c := fetcher{s: &subscription{b: b, q: q}, ring: newRing(q.turns), levels: []int64{0}}, &claim{want: 1}
	err = f.readKeys(ctx, c)
	return c.wake, err
}

// MarksKnown reports whether a claim without bounds marks its messages as bound, although it takes
// them from keys that an earlier reading has found.
func MarksKnown(ctx context.Context, b *Broker, name string) (bool, error) {
	q, err := b.queue(ctx, name)
	if err != nil {
		return false, err
	}
	f := fetcher{s: &subscription{b: b, q: q}, ring: newRing(q.turns), levels: []int64{0}}
	f.ring.claimed, f.sweep, f.swept = manyClaimed, time.Hour, time.Now()
	f.ring.set(0, []*ringKey{{key: "a", weight: 1, room: 1}}, true)
	c := &claim{want: 1}
	err = f.pickKeys(ctx, c)
	return c.bound, err
}

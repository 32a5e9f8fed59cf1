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
	statements := map[string]struct {
		query string
		args  []any
	}{
		"retry":   {b.text.retry, append(key[:4:4], []int64{1}, []int64{0}, []int64{0}, []int64{1}, []string{"a"}, []int64{1}, []int64{1}, []int64{0}, []string{""}, [][]byte{nil}, [][]byte{{}})},
		"dead":    {b.text.dead, append(key[:4:4], []int64{1}, [][]byte{{}}, [][]byte{{}}, []int64{1})},
		"claim":   {b.text.claim, []any{1, []int64{0, 1}, []int64{0, 0}, []int64{0, 0}, 10, 1000, 1}},
		"ack":     {b.text.ack, key},
		"release": {b.text.release, append(key[:4:4], []int64{0}, []int64{0})},
		"renew":   {b.text.renew, append(key[:4:4], []int64{1})},
		"find":    {b.text.find, []any{1, "a"}},
		"recover": {b.text.recover, []any{1, 1, 10}},
	}
	explain := "EXPLAIN "
	if !b.postgres() {
		explain = "EXPLAIN QUERY PLAN "
		delete(statements, "retry") // it is ack and insert
		for name, s := range statements {
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

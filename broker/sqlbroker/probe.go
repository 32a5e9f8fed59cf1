package sqlbroker

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/swarmiji/swarmiji/internal/sqlconn"
)

// prober finds out which queues have messages, for all subscriptions of a Broker. Questions that
// arrive during a statement share the next one. The subscriptions poll at the same times, so that a
// thousand idle queues cost two statements. Safe for concurrent use.
type prober struct {
	b *Broker

	mu      sync.Mutex
	pending []*question
	running bool

	asked, sent atomic.Int64 // questions and statements, for tests
}

// question asks when the first message of a queue can be claimed.
type question struct {
	q    *queue
	from int64 // PostgreSQL leaves out messages that are due until then

	// The answer. It is set before done is closed.
	next *int64 // the microseconds until then, not positive for now; nil: there is no message
	now  int64  // the database's time
	err  error
	done chan struct{}
}

// ask answers the question. On PostgreSQL it takes messages that are held for claimable ones. It
// waits for the database until ctx ends. Returns the errors of the database.
func (p *prober) ask(ctx context.Context, ask *question) error {
	ask.done = make(chan struct{})
	p.mu.Lock()
	p.pending = append(p.pending, ask)
	if !p.running {
		p.running = p.b.start(p.run)
	}
	started := p.running
	p.mu.Unlock()
	if !started {
		return errClosed
	}
	select {
	case <-ask.done:
		return ask.err
	case <-ctx.Done():
		return errNotSent(ctx)
	}
}

// run answers the pending questions, maxBatch with one statement, until none is pending.
func (p *prober) run() {
	for {
		p.mu.Lock()
		n := min(len(p.pending), maxBatch)
		asks := p.pending[:n:n]
		p.pending = p.pending[n:]
		if n == 0 {
			p.pending, p.running = nil, false
			p.mu.Unlock()
			return
		}
		p.mu.Unlock()
		p.asked.Add(int64(n))
		err := p.b.conn.View(p.b.calls, func(ctx context.Context, tx *sqlconn.Tx) error { return p.read(ctx, tx, asks) })
		for _, ask := range asks {
			ask.err = err
			close(ask.done)
		}
	}
}

// read answers the questions with one statement.
func (p *prober) read(ctx context.Context, tx *sqlconn.Tx, asks []*question) error {
	p.sent.Add(1)
	var of []int // the index of the question of each level
	var queues, levels, from []int64
	for i, ask := range asks {
		ask.next = nil
		for level := range ask.q.count() {
			of, queues, levels, from = append(of, i), append(queues, ask.q.id), append(levels, int64(level)), append(from, ask.from)
		}
	}
	args := []any{queues, levels, from}
	if !p.b.postgres() {
		args = []any{list(queues), list(levels)}
	}
	rows, err := tx.Query(ctx, p.b.text.probe, args...)
	if err != nil {
		return err
	}
	var now int64
	for rows.Next() {
		var n, next *int64
		if err := rows.Scan(&now, &n, &next); err != nil {
			return err
		}
		if n == nil || next == nil {
			continue
		}
		if ask := asks[of[*n-1]]; ask.next == nil || *next < *ask.next {
			ask.next = next
		}
	}
	for _, ask := range asks {
		ask.now = now
	}
	return errors.Join(rows.Err(), rows.Close())
}

// list returns numbers as a parameter of SQLite.
func list(numbers []int64) string {
	text, _ := json.Marshal(numbers) // numbers can always be encoded
	return string(text)
}

// tick returns the next time at which the waiting subscriptions of the Broker poll. It is at most
// Poll after now.
func (b *Broker) tick(now time.Time) time.Time {
	return now.Add(b.cfg.Poll - now.Sub(b.made)%b.cfg.Poll)
}

// mayFind reports whether to send the claim c. After a claim that found too little it asks first
// whether there is a message. In a SQLite file, a claim without result would lock out all other
// writers. Each change of the file wakes the consumers of all queues. On PostgreSQL it asks for
// a poll only, since a question before a claim costs another round trip.
func (f *fetcher) mayFind(ctx context.Context, c *claim) (bool, error) {
	b := f.s.b
	if !f.short || !b.conn.Shared() || b.postgres() && (!f.polls || f.moved) {
		return true, nil
	}
	ask := &question{q: f.s.q, from: f.due[0]}
	if err := b.probe.ask(ctx, ask); err != nil {
		return false, err
	}
	if b.postgres() && ask.from == math.MinInt64 {
		f.sweep, f.swept = time.Since(c.sent), c.sent
	}
	c.now = ask.now
	c.wakeIn(ask.next)
	return ask.next != nil && *ask.next <= 0, nil
}

package sqlbroker

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/swarmiji/swarmiji/internal/sqlconn"
	"github.com/swarmiji/swarmiji/internal/wake"
)

// peek asks when a message of a queue can be claimed, for a subscription that waits. The questions
// that arrive during a read are one statement, so a thousand waiting queues cost hardly more than
// one.
type peek struct {
	queue *queue
	from  []int64 // for PostgreSQL: the cursor of each level

	ready bool          // a message can be claimed now
	wake  time.Duration // the time until the first one can, at least 1 µs; 0: no message
}

// gatherTime is the time in which the goroutines that a poll wakes ask their questions.
const gatherTime = time.Millisecond

// nextPoll returns the next time after now at which subscriptions poll. It is the same for all of
// them, so that their questions share a read.
func (b *Broker) nextPoll(now time.Time) time.Time {
	return now.Add(b.cfg.Poll - now.Sub(b.begun)%b.cfg.Poll)
}

// mayFind reports whether to send the claim c. It first asks the database with a peek, but only in
// these cases. In all others it returns true at once:
//
//   - The last claim found too few messages, and the database is a file. A claim without result
//     would lock out all other writers, and each change of the file wakes the consumers of all
//     queues.
//   - The last claim found too few messages, the database is PostgreSQL, and c follows a poll. A
//     notification is about this queue, so it needs no question.
//
// If no message can be claimed it sets c.wake and returns false. It waits for the database and
// returns its errors.
func (f *fetcher) mayFind(ctx context.Context, c *claim) (ready bool, err error) {
	b := f.s.b
	if !f.short || !b.conn.Shared() || b.postgres() && !f.polls {
		return true, nil
	}
	if f.polls {
		b.polling.Store(true)
	}
	e := &sqlconn.Entry[*peek]{V: &peek{queue: f.s.q, from: slices.Clone(f.due)}, Call: sqlconn.NewBatchCall(1)}
	b.peeks.Add(e)
	if err := b.peeks.Wait(ctx, e.Call, []*sqlconn.Entry[*peek]{e})[0]; err != nil {
		return false, err
	}
	if !e.V.ready {
		c.wake = e.V.wake
	}
	return e.V.ready, nil
}

// readyToPeek makes the tables, as ready does, before a read of the peeks. A poll wakes all waiting
// subscriptions. So if a question came from a poll, it first waits for gatherTime, and the other
// questions share the read. Returns the errors of ready.
func (b *Broker) readyToPeek(ctx context.Context) error {
	if b.polling.Swap(false) {
		wake.Sleep(ctx, gatherTime)
	}
	return b.ready(ctx)
}

// peekAll answers the questions es with one statement in tx. Returns errors of the database. It is
// the send function of the batcher of peeks.
func (b *Broker) peekAll(ctx context.Context, tx *sqlconn.Tx, es []*sqlconn.Entry[*peek]) error {
	ps := make([]*peek, len(es))
	for i, e := range es {
		ps[i] = e.V
	}
	return b.peekIn(ctx, tx, ps...)
}

// peekIn answers the questions ps with one statement in tx, or two if some queues are fair. It sets
// ready and wake of each. Returns errors of the database.
func (b *Broker) peekIn(ctx context.Context, tx *sqlconn.Tx, ps ...*peek) error {
	for _, text := range []*texts{b.text, b.fairText} {
		own := slices.DeleteFunc(slices.Clone(ps), func(p *peek) bool { return p.queue.text != text })
		if len(own) == 0 {
			continue
		}
		if err := b.peekOf(ctx, tx, text, own); err != nil {
			return err
		}
	}
	return nil
}

// peekOf is peekIn for the queues of one table, which text belongs to.
func (b *Broker) peekOf(ctx context.Context, tx *sqlconn.Tx, text *texts, ps []*peek) error {
	var of []*peek // the question of each pair of a queue and a level
	var queues, levels, from, keys []int64
	for _, p := range ps {
		p.ready, p.wake = false, 0
		for level := range int64(p.queue.count()) {
			of, queues, levels = append(of, p), append(queues, p.queue.id), append(levels, level)
			keys = append(keys, max(p.queue.id, -p.queue.id)*maxLevels+level)
		}
		from = append(from, p.from...)
	}
	args := []any{queues, levels, from}
	if !b.postgres() {
		list, err := json.Marshal(keys)
		if err != nil {
			return err
		}
		args = []any{string(list)}
	}
	found, err := tx.Query(ctx, text.peek, args...)
	if err != nil {
		return err
	}
	for found.Next() {
		var n int64
		var next *int64
		if err := found.Scan(&n, &next); err != nil {
			return err
		}
		if next != nil {
			of[n].answer(*next)
		}
	}
	return errors.Join(found.Err(), found.Close())
}

// answer records that a message can be claimed after us microseconds. It sets p.ready if us is 0 or
// less, and p.wake if that is earlier than before.
func (p *peek) answer(us int64) {
	p.ready = p.ready || us <= 0
	if d := max(time.Duration(us)*time.Microsecond, time.Microsecond); p.wake == 0 || d < p.wake {
		p.wake = d
	}
}

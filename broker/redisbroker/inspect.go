package redisbroker

import (
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/swarmiji/swarmiji/broker"
)

// purgeChunk is the number of messages that one call removes.
const purgeChunk = 500

// Stats implements [broker.Inspector]. It waits for the server. Delayed messages that are due count
// as ready. Returns ErrNoQueue if the queue does not exist, ErrMalformed if its name is not valid.
//
// Oldest is up to a second too early, and in a long backlog a few percent of the age. It may be too
// late for messages that a consumer gave back, or that an older version or another program added.
// In a fair queue it is exact to the second; seconds are merged if more than 64 have messages.
func (b *Broker) Stats(ctx context.Context, queue string) (broker.Stats, error) {
	q, err := b.open(queue)
	if err != nil {
		return broker.Stats{}, err
	}
	answer, _, err := q.callWithLevels(ctx, b.conn.Eval, b.scripts.stats)
	if err != nil {
		return broker.Stats{}, wrap(err, "stats of", queue)
	}
	n := func(i int) int { return max(0, int(number(answer, i))) }
	st := broker.Stats{Ready: n(1), Held: n(2), Delayed: n(3), Dead: n(4), DeadDropped: n(5)}
	if us, err := strconv.ParseFloat(text(answer, 6), 64); err == nil && st.Ready > 0 {
		st.Oldest = time.UnixMicro(int64(us))
	}
	return st, nil
}

// Audit implements [broker.Auditor]. It returns warnings: settings of the server that weaken the
// promises, and dead letters of the queue that are as many as Config.DeadMax. An empty queue name
// means only the settings. It waits for the server.
//
// If the dead letters cannot be counted it returns only that error, such as ErrNoQueue. If the
// settings cannot be read it returns the error and the warning about dead letters.
func (b *Broker) Audit(ctx context.Context, queue string) ([]string, error) {
	full := ""
	if queue != "" {
		st, err := b.Stats(ctx, queue)
		if err != nil {
			return nil, err
		}
		full = broker.AuditDead(queue, st.Dead, b.cfg.DeadMax)
	}
	notes, err := b.conn.Settings(ctx)
	if full != "" {
		notes = append(slices.Clip(notes), full)
	}
	return notes, wrap(err, "audit", queue)
}

// Purge implements [broker.Inspector]. It removes ready messages, up to 500 with each call to the
// server, and returns their number. It ends when no message is ready, or when as many are removed
// as were ready at the beginning. If consumers receive messages meanwhile, later messages may be
// removed in their place.
//
// After an error it returns the number removed so far too. Returns ErrNoQueue if the queue does not
// exist.
func (b *Broker) Purge(ctx context.Context, queue string) (int, error) {
	st, err := b.Stats(ctx, queue)
	if err != nil {
		return 0, err
	}
	q, err := b.open(queue)
	if err != nil {
		return 0, err
	}
	total := 0
	for total < st.Ready {
		answer, _, err := q.callWithLevels(ctx, b.conn.Eval, b.scripts.purge, purgeChunk)
		if err != nil {
			return total, wrap(err, "purge", queue)
		}
		total += int(number(answer, 1))
		if number(answer, 2) == 0 {
			break
		}
	}
	return total, nil
}

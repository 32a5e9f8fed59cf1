package redisbroker

import (
	"context"
	"errors"
	"slices"

	"github.com/swarmiji/swarmiji/broker"
)

var _ broker.Describer = (*Broker)(nil)

// Describe implements [broker.Describer]. It waits for the server. Returns ErrNoQueue if the queue
// does not exist, ErrMalformed if its name is not valid.
func (b *Broker) Describe(ctx context.Context, queue string) (broker.Queue, error) {
	q, err := b.open(queue)
	if err != nil {
		return broker.Queue{}, err
	}
	v, err := q.eval(ctx, b.conn.Eval, b.scripts.describe)
	if err != nil {
		return broker.Queue{}, wrap(err, "describe", queue)
	}
	answer, status, err := parseAnswer(v)
	switch {
	case err != nil || status != done && status != noQueue:
		return broker.Queue{}, wrap(errors.Join(errAnswer, err), "describe", queue)
	case status == noQueue:
		return broker.Queue{}, wrap(broker.ErrNoQueue, "describe", queue)
	}
	l := q.storeLevels(text(answer, 1))
	return broker.Queue{Name: queue, Levels: slices.Clone(l.bounds), Fair: l.fair}, nil
}

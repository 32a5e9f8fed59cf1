package natsbroker

import (
	"context"

	"github.com/swarmiji/swarmiji/broker"
)

// Audit implements [broker.Auditor]. It returns one sentence if the dead letters of the queue are
// as many as Config.DeadMax, otherwise nil. Without a queue it checks nothing and returns nil.
// Streams that exist with other settings are reported in the log instead. It waits for the server
// and returns the errors of Stats.
func (b *Broker) Audit(ctx context.Context, queue string) ([]string, error) {
	if queue == "" {
		return nil, nil
	}
	st, err := b.Stats(ctx, queue)
	if err != nil {
		return nil, err
	}
	if full := broker.AuditDead(queue, st.Dead, b.cfg.DeadMax); full != "" {
		return []string{full}, nil
	}
	return nil, nil
}

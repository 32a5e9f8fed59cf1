package consumer

import (
	"context"
	"fmt"
	"time"

	"github.com/swarmiji/swarmiji/control"
	"github.com/swarmiji/swarmiji/revoke"
	"github.com/swarmiji/swarmiji/task"
)

// newCommandServer returns the server of remote commands for c, or nil without Config.Control. It
// starts nothing. Control.Logger defaults to Config.Logger. If a server or service may revoke tasks
// but Config.Revocations is nil, it sets c.cfg.Revocations to a list of this process only. Returns
// the errors of [control.NewServer], for example for a missing bus.
func newCommandServer(c *Consumer) (*control.Server, error) {
	signed := c.cfg.Control
	if c.cfg.Revocations == nil && (len(c.cfg.ControlServices) > 0 || signed != nil && signed.Allows(control.DoRevoke)) {
		c.cfg.Revocations = revoke.NewLocal(c.cfg.Logger)
	}
	if signed == nil {
		return nil, nil
	}
	cfg := *signed
	if cfg.Logger == nil {
		cfg.Logger = c.cfg.Logger
	}
	s, err := control.NewServer(cfg, controlNode{c})
	if err != nil {
		return nil, fmt.Errorf("swarmiji: consumer: config: Control: %w", err)
	}
	return s, nil
}

// ControlCounts returns the counts of received commands by outcome. They are zero without
// Config.Control. Safe for concurrent use.
func (c *Consumer) ControlCounts() control.Counts { return c.commands.Counts() }

// controlNode adapts a consumer to [control.Node].
type controlNode struct{ *Consumer }

// Queues returns the names of the consumed queues, sorted. Before Run they are those of Config.
func (n controlNode) Queues() []string { return n.queues.Names() }

// Stats returns the state and the counts of the consumer in the form that commands send, see
// [Consumer.Stats]. Totals has received, started, succeeded, failed and retried; a negative count
// becomes 0.
func (n controlNode) Stats() control.Stats {
	s := n.Consumer.Stats()
	out := control.Stats{Totals: make(map[string]uint64), Stopping: !s.Running}
	for name, total := range map[string]int64{
		"received": s.Received, "started": s.Started, "succeeded": s.Succeeded, "failed": s.Failed, "retried": s.Retried,
	} {
		out.Totals[name] = uint64(max(total, 0))
	}
	for _, q := range s.Queues {
		out.Queues = append(out.Queues, control.QueueStats{
			Name: q.Name, Workers: q.Workers, Prefetch: q.Prefetch, Active: q.Active, Reserved: q.Reserved, Paused: q.Paused, Stuck: q.Stuck,
		})
	}
	return out
}

// revokeTimeout limits how long a command waits until a revocation is stored, or the broker has
// answered. Later commands wait for it.
const revokeTimeout = 5 * time.Second

// ServeQueue calls [Consumer.AddQueue] within revokeTimeout. See [control.QueueChanger].
func (n controlNode) ServeQueue(ctx context.Context, name string, workers int) error {
	ctx, cancel := context.WithTimeout(ctx, revokeTimeout)
	defer cancel()
	return n.AddQueue(ctx, name, QueueConfig{Workers: workers})
}

// LeaveQueue calls [Consumer.RemoveQueue] and does not wait for running tasks.
func (n controlNode) LeaveQueue(_ context.Context, name string) error {
	_, err := n.beginRemoval(name, true)
	return err
}

// Revoke adds a revocation of the tasks to Config.Revocations, which revokes them in this process
// at once. If that list has a bus, it also sends the revocation to all consumers. It blocks for at
// most revokeTimeout and returns the error of the list. terminate also ends running tasks. See
// [control.Revoker].
func (n controlNode) Revoke(ctx context.Context, terminate bool, ids ...task.ID) error {
	ctx, cancel := context.WithTimeout(ctx, revokeTimeout)
	defer cancel()
	return n.cfg.Revocations.Revoke(ctx, revoke.Options{Terminate: terminate}, ids...)
}

var (
	_ control.Revoker      = controlNode{}
	_ control.QueueChanger = controlNode{}
)

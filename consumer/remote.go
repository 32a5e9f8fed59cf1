package consumer

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/swarmiji/swarmiji/control"
	"github.com/swarmiji/swarmiji/middleware"
	"github.com/swarmiji/swarmiji/revoke"
	"github.com/swarmiji/swarmiji/task"
)

// newRemote makes the server that lets c be commanded; nil when nobody may. Who may be told to revoke has a list for it.
func newRemote(c *Consumer) (*control.Server, error) {
	if c.cfg.Control == nil {
		return nil, nil
	}
	cfg := *c.cfg.Control
	if c.cfg.Revocations == nil && cfg.Allows(control.DoRevoke) {
		c.cfg.Revocations = revoke.NewLocal(c.cfg.Logger)
	}
	if cfg.Logger == nil {
		cfg.Logger = c.cfg.Logger
	}
	s, err := control.NewServer(cfg, node{c})
	if err != nil {
		return nil, fmt.Errorf("swarmiji: consumer: config: Control: %w", err)
	}
	return s, nil
}

// obey listens for commands until the function it returns is called: while the broker is waited for, and also during a stop,
// which a command may then hasten.
func (c *Consumer) obey(ctx context.Context) (end func()) {
	if c.remote == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := c.remote.Run(ctx); err != nil { // tasks go on without
			c.cfg.Logger.LogAttrs(ctx, slog.LevelError, "the consumer obeys no commands any more",
				slog.Any("error", err), slog.String(middleware.LogNode, c.cfg.Report.NodeID))
		}
	}()
	return func() {
		cancel()
		<-ended
	}
}

// ControlCounts returns what became of the commands that came, zero without Config.Control. It may be called at any time.
func (c *Consumer) ControlCounts() control.Counts {
	if c.remote == nil {
		return control.Counts{}
	}
	return c.remote.Counts()
}

// node is a consumer as commands see it.
type node struct{ *Consumer }

// Queues implements [control.Node].
func (n node) Queues() []string { return slices.Sorted(maps.Keys(n.cfg.Queues)) }

// Stats implements [control.Node].
func (n node) Stats() control.Stats {
	s := n.Consumer.Stats()
	out := control.Stats{Totals: make(map[string]uint64)}
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

// Active implements [control.Node].
func (n node) Active() []control.Task { return told(n.Consumer.Active()) }

// Reserved implements [control.Node].
func (n node) Reserved() []control.Task { return told(n.Consumer.Reserved()) }

func told(ts []TaskInfo) []control.Task {
	out := make([]control.Task, len(ts))
	for i, t := range ts {
		out[i] = control.Task{ID: t.ID, Name: t.Name, Queue: t.Queue, Since: t.Since, Attempt: t.Attempt}
	}
	return out
}

// recordTime bounds how long a command waits until the bus of the revocations has stored one; others wait behind it.
const recordTime = 5 * time.Second

// Revoke implements [control.Revoker]: here at once, and where Config.Revocations has a bus, for all.
func (n node) Revoke(ctx context.Context, terminate bool, ids ...task.ID) error {
	ctx, cancel := context.WithTimeout(ctx, recordTime)
	defer cancel()
	return n.cfg.Revocations.Revoke(ctx, revoke.Options{Terminate: terminate}, ids...)
}

var _ control.Revoker = node{}

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/swarmiji/swarmiji/control"
	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/events/liveness"
	"github.com/swarmiji/swarmiji/open"
)

func (a *app) workersCmd() *cobra.Command {
	var t target
	var listen time.Duration
	cmd := &cobra.Command{
		Use:   "workers",
		Short: "Show the consumers and producers that are alive",
		Long: "Workers listens for the heartbeats of consumers and producers, which come every 2 s, and asks consumers for\n" +
			"their state. It prints a line for each one: node id, role, host, queues, state, running tasks (ACTIVE), tasks\n" +
			"done since its start (PROCESSED), last heartbeat, and load and memory of the machine (0 to 1). It changes\n" +
			"nothing.\n\n" +
			"Exit status: 4 if nothing was heard of a consumer or producer.",
		Example: "  swarmiji workers\n" +
			"  swarmiji workers --listen 10s -o json",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.workers(cmd.Context(), &t, listen) },
	}
	cmd.Flags().DurationVar(&listen, "listen", listenTime, "how long to listen for heartbeats and answers")
	cmd.Flags().IntVar(&t.replies, "replies", 0, "stop listening after this many answers of consumers; default: listen for --listen")
	return cmd
}

// listenTime is the default time to listen for heartbeats, which come every 2 s, and for answers.
const listenTime = 2500 * time.Millisecond

// workerOutput is the output for a node.
type workerOutput struct {
	Node      string    `json:"node"`
	Role      string    `json:"role,omitempty"`
	Host      string    `json:"host,omitempty"`
	Queues    []string  `json:"queues,omitempty"` // of a consumer
	Answers   bool      `json:"answers"`
	Offline   bool      `json:"offline,omitempty"` // the node has sent worker-offline
	Active    int       `json:"active"`
	Processed int64     `json:"processed"`
	Load      *float64  `json:"load,omitempty"`
	Memory    *float64  `json:"mem,omitempty"`
	Version   string    `json:"version,omitempty"`
	Heartbeat time.Time `json:"heartbeat,omitzero"`
}

func (a *app) workers(ctx context.Context, t *target, listen time.Duration) error {
	if listen <= 0 || t.replies < 0 {
		return fmt.Errorf("%w: --listen is %v and --replies %d", errUsage, listen, t.replies)
	}
	keys, err := a.keys()
	if err != nil {
		return err
	}
	return a.withSwarm(ctx, open.Options{Control: true}, func(ctx context.Context, s *open.Swarm) error {
		ctx, cancel := context.WithTimeout(ctx, listen+a.timeout)
		defer cancel()
		listening, enough := context.WithTimeout(ctx, listen)
		defer enough()
		heard, err := hear(listening, s.Events)
		if err != nil {
			return err
		}
		replies, err := send(ctx, s, keys, control.Command{Do: control.DoStats}, control.Wait{Replies: t.replies, Timeout: listen})
		if t.replies > 0 && len(replies) >= t.replies {
			enough()
		}
		nodes, herr := heard()
		if err == nil || errors.Is(err, errNobody) || errors.Is(err, control.ErrMissing) {
			err = herr
		}
		if err != nil {
			return err
		}
		for i := range replies {
			note(nodes, &replies[i])
		}
		if len(nodes) == 0 {
			return errNobody
		}
		return a.showWorkers(nodes)
	})
}

// hear collects the events of nodes until ctx ends. The returned function waits for that end.
func hear(ctx context.Context, bus events.EventBus) (heard func() (map[string]*workerOutput, error), err error) {
	observer, err := liveness.New(liveness.Config{Bus: bus, Silent: true, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, err
	}
	ended := make(chan error, 1)
	go func() { ended <- observer.Run(ctx) }()
	return func() (map[string]*workerOutput, error) {
		err := <-ended
		nodes := make(map[string]*workerOutput)
		for _, n := range observer.Nodes() {
			w := n.Worker
			nodes[n.ID] = &workerOutput{
				Node: n.ID, Offline: !n.Online, Role: w.Role, Host: w.Hostname, Active: w.Active, Processed: w.Processed,
				Version: w.Version, Heartbeat: n.Told, Load: share(w.Load), Memory: share(w.Mem), Queues: w.Queues,
			}
		}
		return nodes, err
	}, nil
}

// share returns nil for a negative, unknown share.
func share(f float64) *float64 {
	if f < 0 {
		return nil
	}
	return &f
}

// note adds the answer of a consumer.
func note(nodes map[string]*workerOutput, r *control.Reply) {
	n := nodes[r.Node]
	if n == nil {
		n = &workerOutput{Node: r.Node, Role: events.RoleConsumer}
		nodes[r.Node] = n
	}
	n.Answers, n.Offline, n.Queues = true, false, r.Queues
	if r.Stats == nil {
		return
	}
	n.Active = 0
	for _, q := range r.Stats.Queues {
		n.Active += q.Active
	}
	n.Processed = max(n.Processed, int64(r.Stats.Totals["succeeded"]+r.Stats.Totals["failed"]+r.Stats.Totals["retried"]))
}

func (a *app) showWorkers(nodes map[string]*workerOutput) error {
	list := slices.SortedFunc(maps.Values(nodes), func(a, b *workerOutput) int { return cmp.Compare(a.Node, b.Node) })
	t := &table{head: []string{"NODE", "ROLE", "HOST", "QUEUES", "STATE", "ACTIVE", "PROCESSED", "LOAD", "MEM", "HEARTBEAT"}}
	for _, n := range list {
		state := "online"
		if n.Offline {
			state = "offline"
		}
		t.add(n.Node, n.Role, n.Host, n.Queues, state, n.Active, n.Processed, optional(n.Load), optional(n.Memory), n.Heartbeat)
	}
	return a.show(list, t)
}

func optional(f *float64) string {
	if f == nil {
		return ""
	}
	return strconv.FormatFloat(*f, 'f', 2, 64)
}

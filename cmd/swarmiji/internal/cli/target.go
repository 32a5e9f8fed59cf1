package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/swarmiji/swarmiji/control"
	"github.com/swarmiji/swarmiji/inspect"
)

// Target holds the flags of commands to consumers.
type Target struct {
	Nodes, Queues []string
	Replies       int
	Collect       time.Duration
}

// Flags adds the flags to cmd. queues is false if the command takes queues as arguments.
func (t *Target) Flags(cmd *cobra.Command, queues bool) {
	f := cmd.Flags()
	f.StringSliceVar(&t.Nodes, "node", nil, "`id` of a consumer that gets the command; may be repeated; default: all consumers")
	if queues {
		f.StringSliceVar(&t.Queues, "queue", nil, "`name` of a queue whose consumers get the command; may be repeated; default: all queues")
	}
	f.IntVar(&t.Replies, "replies", 0, "number of answers to wait for; fewer are an error (status 1); default: all consumers of --node, or all answers within --collect")
	f.DurationVar(&t.Collect, "collect", control.DefaultTimeout, "how long to wait for answers")
}

// Listen adds the flags of commands that ask consumers.
func (t *Target) Listen(cmd *cobra.Command) {
	cmd.Flags().DurationVar(&t.Collect, "collect", ListenTime, "how long to wait for answers and heartbeats of consumers")
	cmd.Flags().IntVar(&t.Replies, "replies", 0, "stop waiting after this many answers; default: wait for --collect")
}

// Check returns an error for wrong numbers.
func (t *Target) Check() error {
	if t.Replies < 0 || t.Collect <= 0 {
		return fmt.Errorf("%w: --replies is %d and --collect %v", ErrUsage, t.Replies, t.Collect)
	}
	return nil
}

// Order sends a command and prints the replies. rows adds the rows of one reply. If a node reports
// an error, Order returns an error after it has printed all replies.
func (a *App) Order(cmd *cobra.Command, t *Target, c control.Command, head []string, rows func(t *Table, r *control.Reply)) error {
	if err := t.Check(); err != nil {
		return err
	}
	c.Nodes = t.Nodes
	if len(c.Queues) == 0 {
		c.Queues = t.Queues
	}
	replies, err := a.command(cmd.Context(), c, control.Wait{Replies: t.Replies, Timeout: t.Collect})
	if len(replies) == 0 {
		if errors.Is(err, ErrNobody) && len(c.Queues) > 0 {
			err = fmt.Errorf("%w; the command is only for consumers of %s", err, strings.Join(c.Queues, ", "))
		}
		return err
	}
	tab := &Table{Head: head}
	errs := []error{err}
	for i := range replies {
		r := &replies[i]
		if r.Error != "" {
			errs = append(errs, fmt.Errorf("node %s: %s", r.Node, Visible(r.Error)))
			continue
		}
		rows(tab, r)
	}
	return errors.Join(append([]error{a.Show(replies, tab)}, errs...)...)
}

// Steer calls do, which sends a command through the inspection API, and prints the answers of
// consumers. If one reports an error, Steer returns an error after it has printed all answers.
func (a *App) Steer(cmd *cobra.Command, t *Target, do func(ctx context.Context, api inspect.API) (inspect.Change, error)) error {
	if err := t.Check(); err != nil {
		return err
	}
	return a.Inspect(cmd.Context(), Inspection{Listen: t.Collect, Replies: t.Waits()}, func(ctx context.Context, api inspect.API) error {
		c, err := do(ctx, api)
		if len(c.Nodes) == 0 && err != nil {
			return err
		}
		tab := &Table{Head: []string{"NODE", "QUEUES", "DONE"}}
		for i := range c.Nodes {
			if n := &c.Nodes[i]; n.Error == "" {
				tab.Add(n.Node, strings.Join(n.Queues, ","), "ok")
			}
		}
		a.Noted(c.Notes)
		return errors.Join(a.Show(c.Nodes, tab), err, NodeErrors(c.Nodes))
	})
}

// Target returns the consumers of the flags.
func (t *Target) Target() inspect.Target { return inspect.Target{Nodes: t.Nodes, Queues: t.Queues} }

// Waits returns the number of answers after which a command waits no longer, 0: it waits for
// --collect.
func (t *Target) Waits() int {
	if t.Replies == 0 && len(t.Queues) == 0 {
		return len(t.Nodes)
	}
	return t.Replies
}

package main

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

// target holds the flags of commands to consumers.
type target struct {
	nodes, queues []string
	replies       int
	collect       time.Duration
}

// flags adds the flags to cmd. queues is false if the command takes queues as arguments.
func (t *target) flags(cmd *cobra.Command, queues bool) {
	f := cmd.Flags()
	f.StringSliceVar(&t.nodes, "node", nil, "`id` of a consumer that gets the command; may be repeated; default: all consumers")
	if queues {
		f.StringSliceVar(&t.queues, "queue", nil, "`name` of a queue whose consumers get the command; may be repeated; default: all queues")
	}
	f.IntVar(&t.replies, "replies", 0, "number of answers to wait for; fewer are an error (status 1); default: all consumers of --node, or all answers within --collect")
	f.DurationVar(&t.collect, "collect", control.DefaultTimeout, "how long to wait for answers")
}

// check returns an error for wrong numbers.
func (t *target) check() error {
	if t.replies < 0 || t.collect <= 0 {
		return fmt.Errorf("%w: --replies is %d and --collect %v", errUsage, t.replies, t.collect)
	}
	return nil
}

// order sends a command and prints the replies. rows adds the rows of one reply. If a node reports
// an error, order returns an error after it has printed all replies.
func (a *app) order(cmd *cobra.Command, t *target, c control.Command, head []string, rows func(t *table, r *control.Reply)) error {
	if err := t.check(); err != nil {
		return err
	}
	c.Nodes = t.nodes
	if len(c.Queues) == 0 {
		c.Queues = t.queues
	}
	replies, err := a.command(cmd.Context(), c, control.Wait{Replies: t.replies, Timeout: t.collect})
	if len(replies) == 0 {
		if errors.Is(err, errNobody) && len(c.Queues) > 0 {
			err = fmt.Errorf("%w; the command is only for consumers of %s", err, strings.Join(c.Queues, ", "))
		}
		return err
	}
	tab := &table{head: head}
	errs := []error{err}
	for i := range replies {
		r := &replies[i]
		if r.Error != "" {
			errs = append(errs, fmt.Errorf("node %s: %s", r.Node, visible(r.Error)))
			continue
		}
		rows(tab, r)
	}
	return errors.Join(append([]error{a.show(replies, tab)}, errs...)...)
}

// steer calls do, which sends a command through the inspection API, and prints the answers of
// consumers. If one reports an error, steer returns an error after it has printed all answers.
func (a *app) steer(cmd *cobra.Command, t *target, do func(ctx context.Context, api inspect.API) (inspect.Change, error)) error {
	if err := t.check(); err != nil {
		return err
	}
	return a.inspect(cmd.Context(), inspection{listen: t.collect, replies: t.waits()}, func(ctx context.Context, api inspect.API) error {
		c, err := do(ctx, api)
		if len(c.Nodes) == 0 && err != nil {
			return err
		}
		tab := &table{head: []string{"NODE", "QUEUES", "DONE"}}
		for i := range c.Nodes {
			if n := &c.Nodes[i]; n.Error == "" {
				tab.add(n.Node, strings.Join(n.Queues, ","), "ok")
			}
		}
		a.noted(c.Notes)
		return errors.Join(a.show(c.Nodes, tab), err, nodeErrors(c.Nodes))
	})
}

// target returns the consumers of the flags.
func (t *target) target() inspect.Target { return inspect.Target{Nodes: t.nodes, Queues: t.queues} }

// waits returns the number of answers after which a command waits no longer, 0: it waits for
// --collect.
func (t *target) waits() int {
	if t.replies == 0 && len(t.queues) == 0 {
		return len(t.nodes)
	}
	return t.replies
}

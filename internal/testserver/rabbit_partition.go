package testserver

import (
	"context"
	"fmt"
)

// Isolate cuts node i off from the other nodes of its cluster, as a network partition would.
// Clients still reach it. The loopback address of this machine has no firewall, so Isolate gives
// the nodes a wrong cookie for each other.
func (c *RabbitCluster) Isolate(ctx context.Context, i int) error {
	return c.between(ctx, i, func(other string) string {
		return fmt.Sprintf("erlang:set_cookie('%s', nope), erlang:disconnect_node('%s')", other, other)
	})
}

// Rejoin undoes Isolate. The node takes part in the cluster again after some seconds.
func (c *RabbitCluster) Rejoin(ctx context.Context, i int) error {
	return c.between(ctx, i, func(other string) string {
		return fmt.Sprintf("erlang:set_cookie('%s', erlang:get_cookie())", other)
	})
}

// between runs an expression about each other node on node i, and one about node i on each other
// node.
func (c *RabbitCluster) between(ctx context.Context, i int, expr func(other string) string) error {
	for j, r := range c.Nodes {
		if j == i {
			continue
		}
		for _, side := range []struct {
			on    *Rabbit
			about string
		}{{c.Nodes[i], r.name}, {r, c.Nodes[i].name}} {
			if _, err := side.on.Eval(ctx, expr(side.about)); err != nil {
				return fmt.Errorf("on %s about %s: %w", side.on.name, side.about, err)
			}
		}
	}
	return nil
}

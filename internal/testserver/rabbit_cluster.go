package testserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"
)

// RabbitCluster is a cluster of RabbitMQ nodes on this machine.
type RabbitCluster struct {
	Nodes []*Rabbit
}

// StartRabbitCluster starts n joined nodes, which takes about 10 seconds for three. A node that
// loses the majority pauses itself (pause_minority).
func StartRabbitCluster(ctx context.Context, n int, cfg RabbitConfig) (*RabbitCluster, error) {
	if n < 1 {
		return nil, fmt.Errorf("rabbitmq: a cluster of %d nodes", n)
	}
	var err error
	for range 3 {
		var nodes []*Rabbit
		if nodes, err = startRabbits(ctx, n, cfg); err == nil {
			c := &RabbitCluster{Nodes: nodes}
			if err = c.joined(ctx); err == nil {
				return c, nil
			}
			err = errors.Join(err, c.Close())
		}
		if errors.Is(err, ErrMissing) || ctx.Err() != nil {
			break
		}
	}
	return nil, fmt.Errorf("rabbitmq cluster: %w", err)
}

// joined waits until each node knows that all nodes run, for up to a minute.
func (c *RabbitCluster) joined(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for _, r := range c.Nodes {
		for {
			out, err := r.Eval(ctx, `io:format("~w", [length(rabbit_mnesia:cluster_nodes(running))])`)
			if err == nil && out == strconv.Itoa(len(c.Nodes)) {
				break
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
				return fmt.Errorf("node %s knows %s running nodes of %d: %w", r.name, out, len(c.Nodes), errors.Join(err, ctx.Err()))
			}
		}
	}
	return nil
}

// URLs returns the nodes' addresses.
func (c *RabbitCluster) URLs() []string {
	urls := make([]string, len(c.Nodes))
	for i, r := range c.Nodes {
		urls[i] = r.URL()
	}
	return urls
}

// KillNode kills node i at once.
func (c *RabbitCluster) KillNode(i int) { c.Nodes[i].Kill() }

// RestartNode starts node i again and waits until it accepts connections. It cannot succeed while a
// majority is down: start the other nodes at the same time.
func (c *RabbitCluster) RestartNode(ctx context.Context, i int) error { return c.Nodes[i].Restart(ctx) }

// Leader returns the index of the node that leads a queue of the default vhost. It asks the running
// nodes in order.
func (c *RabbitCluster) Leader(ctx context.Context, queue string) (int, error) {
	node, err := c.leaderName(ctx, queue)
	if err != nil {
		return 0, err
	}
	for i, r := range c.Nodes {
		if r.name == node {
			return i, nil
		}
	}
	return 0, fmt.Errorf("queue %q is led by %q, which is none of the cluster", queue, node)
}

// leaderName returns the name of the node that leads a queue of the default vhost. Returns an error
// if the queue does not exist.
func (c *RabbitCluster) leaderName(ctx context.Context, queue string) (string, error) {
	out, err := c.ctl(ctx, "list_queues", "--formatter", "json", "name", "leader")
	if err != nil {
		return "", err
	}
	var queues []struct{ Name, Leader string }
	if err := json.Unmarshal(out, &queues); err != nil {
		return "", fmt.Errorf("list_queues printed %q: %w", out, err)
	}
	for _, q := range queues {
		if q.Name == queue {
			return q.Leader, nil
		}
	}
	return "", fmt.Errorf("no queue %q", queue)
}

// ctl runs rabbitmqctl against the first running node.
func (c *RabbitCluster) ctl(ctx context.Context, args ...string) ([]byte, error) {
	for _, r := range c.Nodes {
		if r.running() {
			return r.Ctl(ctx, args...)
		}
	}
	return nil, errors.New("no node of the cluster runs")
}

// Close kills the nodes and removes their data. It is idempotent.
func (c *RabbitCluster) Close() error {
	for _, r := range c.Nodes {
		r.Kill()
	}
	c.Nodes[0].epmd.kill()
	return c.Nodes[0].box.close()
}

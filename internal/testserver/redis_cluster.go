package testserver

import (
	"context"
	"errors"
	"fmt"
	"strconv"
)

// RedisCluster is a Redis Cluster on this machine: primaries that share the slots, without
// replicas. While one primary is down, the others refuse all keys after some two seconds, which is
// Redis' default.
type RedisCluster struct {
	Nodes []*Redis
}

const redisSlots = 16384

// StartRedisCluster starts n nodes, at least three, and joins them. It waits some seconds until
// each node reports that the cluster works.
func StartRedisCluster(ctx context.Context, n int, cfg RedisConfig) (*RedisCluster, error) {
	if n < 3 {
		return nil, fmt.Errorf("redis: a cluster of %d nodes", n)
	}
	c := &RedisCluster{}
	password := redisPassword()
	for i := range n {
		r, err := startRedis(ctx, redisPlan{
			RedisConfig: cfg, name: "redis node " + strconv.Itoa(i), password: password, cluster: true,
		})
		if err != nil {
			return nil, errors.Join(err, c.Close())
		}
		c.Nodes = append(c.Nodes, r)
	}
	err := c.join(ctx)
	if err == nil {
		err = c.ready(ctx)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("redis cluster: %w", err), c.Close())
	}
	return c, nil
}

// join gives each node its part of the slots and introduces it to the first node. It does not wait
// until the cluster works.
func (c *RedisCluster) join(ctx context.Context) error {
	for i, r := range c.Nodes {
		first, next := i*redisSlots/len(c.Nodes), (i+1)*redisSlots/len(c.Nodes)
		commands := [][]any{
			// different from the start, otherwise the nodes must resolve the conflict
			{"CLUSTER", "SET-CONFIG-EPOCH", i + 1},
			{"CLUSTER", "ADDSLOTSRANGE", first, next - 1},
		}
		if i > 0 {
			commands = append(commands, []any{"CLUSTER", "MEET", "127.0.0.1", c.Nodes[0].port, c.Nodes[0].busPort})
		}
		for _, args := range commands {
			if _, err := r.Do(ctx, args...); err != nil {
				return fmt.Errorf("%s: %v: %w", r.name, args[1], err)
			}
		}
	}
	return nil
}

// ready waits until each running node reports that all slots are served and that it knows all
// nodes.
func (c *RedisCluster) ready(ctx context.Context) error {
	for _, r := range c.Nodes {
		if !r.running() {
			continue
		}
		err := r.proc.await(ctx, func(ctx context.Context) error {
			out, err := r.Do(ctx, "CLUSTER", "INFO")
			if err != nil {
				return err
			}
			f := redisFields(fmt.Sprint(out))
			if f["cluster_state"] != "ok" || f["cluster_known_nodes"] != strconv.Itoa(len(c.Nodes)) {
				return fmt.Errorf("state %s, knows %s nodes", f["cluster_state"], f["cluster_known_nodes"])
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("%s: %w", r.name, err)
		}
	}
	return nil
}

// URLs returns the nodes' addresses with user and password.
func (c *RedisCluster) URLs() []string {
	urls := make([]string, len(c.Nodes))
	for i, r := range c.Nodes {
		urls[i] = r.URL()
	}
	return urls
}

// Addrs returns host:port of the nodes.
func (c *RedisCluster) Addrs() []string {
	addrs := make([]string, len(c.Nodes))
	for i, r := range c.Nodes {
		addrs[i] = r.Addr()
	}
	return addrs
}

// User returns the user in each of the URLs.
func (c *RedisCluster) User() string { return redisUser }

// Password returns the password in each of the URLs.
func (c *RedisCluster) Password() string { return c.Nodes[0].password }

// Owner returns the index of the node that holds a key.
func (c *RedisCluster) Owner(ctx context.Context, key string) (int, error) {
	slot, err := c.Nodes[0].Do(ctx, "CLUSTER", "KEYSLOT", key)
	if err != nil {
		return 0, err
	}
	n, ok := slot.(int64)
	if !ok {
		return 0, fmt.Errorf("CLUSTER KEYSLOT answered %v", slot)
	}
	for i := range c.Nodes {
		if int(n) < (i+1)*redisSlots/len(c.Nodes) {
			return i, nil
		}
	}
	return 0, fmt.Errorf("slot %d", n)
}

// KillNode kills node i at once.
func (c *RedisCluster) KillNode(i int) { c.Nodes[i].Kill() }

// RestartNode starts node i again and waits until all running nodes report that the cluster works.
func (c *RedisCluster) RestartNode(ctx context.Context, i int) error {
	if err := c.Nodes[i].Restart(ctx); err != nil {
		return err
	}
	return c.ready(ctx)
}

// Close kills the nodes and removes their data. It is idempotent.
func (c *RedisCluster) Close() error { return closeAll(c.Nodes...) }

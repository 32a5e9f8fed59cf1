package testserver

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// NATSCluster is a cluster of NATS servers on this machine, with replicated JetStream.
type NATSCluster struct {
	Nodes []*NATS
}

// StartNATSCluster starts n servers and waits until they have a leader and are connected to each
// other. Three servers take some seconds.
func StartNATSCluster(ctx context.Context, n int, cfg NATSConfig) (*NATSCluster, error) {
	if n < 3 {
		return nil, fmt.Errorf("nats: a cluster of %d servers", n)
	}
	var err error
	for range 3 {
		var nodes []*NATS
		if nodes, err = startNATS(ctx, n, cfg); err == nil {
			c := &NATSCluster{Nodes: nodes}
			if err = c.ready(ctx); err == nil {
				return c, nil
			}
			err = errors.Join(err, c.Close())
		}
		if errors.Is(err, ErrMissing) || ctx.Err() != nil {
			break
		}
	}
	return nil, fmt.Errorf("nats cluster: %w", err)
}

// ready waits until each running server sees a leader and a connection to every other running
// server.
func (c *NATSCluster) ready(ctx context.Context) error {
	up := 0
	for _, s := range c.Nodes {
		if s.running() {
			up++
		}
	}
	for _, s := range c.Nodes {
		if !s.running() {
			continue
		}
		if err := s.proc.await(ctx, func(ctx context.Context) error { return s.joined(ctx, up) }); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	return nil
}

// joined returns nil if the server sees a leader of JetStream and a connection to each of the other
// servers. The leader must also take them for online, because it places replicas on such only.
func (s *NATS) joined(ctx context.Context, servers int) error {
	var js struct {
		Meta struct {
			Leader   string
			Replicas []struct{ Offline bool }
		} `json:"meta_cluster"`
	}
	var routes struct {
		Routes []struct {
			Remote string `json:"remote_name"`
		}
	}
	if err := s.ask(ctx, "/jsz", &js); err != nil {
		return err
	}
	if err := s.ask(ctx, "/routez", &routes); err != nil {
		return err
	}
	others := make(map[string]bool)
	for _, r := range routes.Routes { // a server has several routes to each other server
		others[r.Remote] = true
	}
	if js.Meta.Leader == "" || len(others) < servers-1 {
		return fmt.Errorf("leader %q, connected with %d others of %d", js.Meta.Leader, len(others), servers-1)
	}
	online := 1 // the leader itself
	for _, r := range js.Meta.Replicas {
		if !r.Offline {
			online++
		}
	}
	if js.Meta.Leader == s.name && online < servers {
		return fmt.Errorf("the leader takes %d servers of %d for online", online, servers)
	}
	return nil
}

// URLs returns the servers' addresses with user and password.
func (c *NATSCluster) URLs() []string {
	urls := make([]string, len(c.Nodes))
	for i, s := range c.Nodes {
		urls[i] = s.URL()
	}
	return urls
}

// URL returns all addresses in one string, separated by commas, as NATS clients accept them.
func (c *NATSCluster) URL() string { return strings.Join(c.URLs(), ",") }

// Password returns the password in each of the URLs.
func (c *NATSCluster) Password() string { return c.Nodes[0].password }

// KillNode kills server i at once.
func (c *NATSCluster) KillNode(i int) { c.Nodes[i].Kill() }

// RestartNode starts server i again and waits until it has caught up with a leader. It cannot
// succeed while a majority is down: start the other servers at the same time.
func (c *NATSCluster) RestartNode(ctx context.Context, i int) error { return c.Nodes[i].Restart(ctx) }

// Leader returns the index of the server that leads a stream. It asks the running servers in order.
// It returns an error during an election.
func (c *NATSCluster) Leader(ctx context.Context, stream string) (int, error) {
	errs := []error{fmt.Errorf("stream %q has no leader that is known", stream)}
	for _, s := range c.Nodes {
		if !s.running() {
			continue
		}
		leader, err := s.leaderOf(ctx, stream)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", s.name, err))
			continue
		}
		for i, node := range c.Nodes {
			if node.name == leader {
				return i, nil
			}
		}
	}
	return 0, errors.Join(errs...)
}

// leaderOf asks the server for the name of the server that leads a stream. It waits for at most a
// second. Returns an error during an election, or if the stream does not exist.
func (s *NATS) leaderOf(ctx context.Context, stream string) (string, error) {
	conn, err := s.connect(natsUser)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	js, err := jetstream.New(conn)
	if err != nil {
		return "", err
	}
	// Without a leader no server answers, not even later.
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	str, err := js.Stream(ctx, stream)
	if err != nil {
		return "", err
	}
	info := str.CachedInfo() // the information was just fetched
	if info.Cluster == nil {
		return "", errors.New("the stream is not of a cluster")
	}
	return info.Cluster.Leader, nil
}

// Close kills the servers and removes their data. It is idempotent.
func (c *NATSCluster) Close() error {
	for _, s := range c.Nodes {
		s.Kill()
	}
	return c.Nodes[0].box.close()
}

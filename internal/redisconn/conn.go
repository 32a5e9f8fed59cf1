package redisconn

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/crew"
	"github.com/swarmiji/swarmiji/internal/netconn"
	"github.com/swarmiji/swarmiji/task"
)

// Conn is a client of Redis. It connects when it is first used and mends lost connections, until Close.
type Conn struct {
	client  redis.UniversalClient
	backoff task.Backoff
	logger  *slog.Logger
	sent    atomic.Uint64 // writes of commands, on all connections
	done    chan struct{} // closed by Close
	ctx     context.Context
	cancel  context.CancelFunc
	running sync.WaitGroup // goroutines of listeners and of the probe
	calls   *crew.Crew

	probeScript *Script
	checked     atomic.Bool // the settings were reported

	mu        sync.Mutex
	closed    bool
	listeners map[*Listener]struct{}
	watchers  netconn.Watchers
	probing   bool
	state     broker.ConnState
	reason    error
	blockedBy string    // a key of a write that was refused
	lastOK    time.Time // of the last answer

	socketsMu sync.Mutex
	sockets   map[*socket]struct{} // nil: closed
}

// New checks the configuration. It does not connect.
func New(cfg Config) (*Conn, error) {
	o, err := cfg.options()
	if err != nil {
		return nil, err
	}
	c := &Conn{
		backoff:   task.Backoff{Base: cfg.Redis.MinRetryBackoff, Max: cfg.Redis.MaxRetryBackoff},
		logger:    cfg.Logger,
		done:      make(chan struct{}),
		listeners: make(map[*Listener]struct{}),
		sockets:   make(map[*socket]struct{}),
		calls:     crew.New(),
		state:     broker.Disconnected,

		probeScript: NewScript(probeSource),
	}
	if c.logger == nil {
		c.logger = slog.Default()
	}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	if o.Dialer == nil {
		o.Dialer = newDialer(o)
	}
	o.Dialer = c.dialer(o.Dialer)
	c.client = newClient(o)
	return c, nil
}

// newClient is redis.NewUniversalClient, but for one option of a cluster's client that the universal options lack.
func newClient(o *redis.UniversalOptions) redis.UniversalClient {
	if o.MasterName == "" && (len(o.Addrs) > 1 || o.IsClusterMode) {
		co := o.Cluster()
		co.DisableRoutingPolicies = true // they ask each node for its table of commands; scripts go by their keys
		return redis.NewClusterClient(co)
	}
	return redis.NewUniversalClient(o)
}

// Client returns the client, for commands whose errors the caller classes with [Conn.Classify]. It never repeats a command
// by itself on a single server or with Sentinel; on a cluster it does, except for those of [Conn.Eval] and [Conn.Do].
func (c *Conn) Client() redis.UniversalClient { return c.client }

// Clustered reports whether the servers are a cluster, where the keys of one script lie in one slot.
func (c *Conn) Clustered() bool {
	_, ok := c.client.(*redis.ClusterClient)
	return ok
}

// Done is closed by Close.
func (c *Conn) Done() <-chan struct{} { return c.done }

// Backoff returns what the Conn waits between attempts.
func (c *Conn) Backoff() task.Backoff { return c.backoff }

// Close ends listeners, watchers and calls that wait, and closes all connections. It is idempotent. It waits for functions of
// a [ListenerConfig] that are under way; those that are when ctx ends, which is then the error, end by themselves.
func (c *Conn) Close(ctx context.Context) error {
	c.mu.Lock()
	first := !c.closed
	if first {
		c.closed = true
		close(c.done)
		c.setState(broker.Disconnected, &failure{ErrClosed, errors.New("closed")})
		c.watchers.Close()
	}
	ls := make([]*Listener, 0, len(c.listeners))
	for l := range c.listeners {
		ls = append(ls, l)
	}
	c.mu.Unlock()
	if first {
		c.cancel()
		c.closeSockets() // else who greets a silent server holds up what follows
		for _, l := range ls {
			l.Close()
		}
		_ = c.client.Close() // that a connection was closed already is no news
	}
	ended := make(chan struct{})
	c.calls.Close()
	go func() {
		c.running.Wait()
		c.calls.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

// start runs fn in a goroutine that Close waits for, unless the Conn is closed; c.mu is held.
func (c *Conn) start(fn func()) bool {
	if c.closed {
		return false
	}
	c.running.Add(1)
	go func() {
		defer c.running.Done()
		fn()
	}()
	return true
}

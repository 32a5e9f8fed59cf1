package redisconn

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/gopool"
	"github.com/swarmiji/swarmiji/internal/netconn"
	"github.com/swarmiji/swarmiji/task"
)

// Conn is a client of Redis. It connects at its first use and replaces lost connections until
// Close.
type Conn struct {
	client  client
	servers string // addresses, for errors
	backoff task.Backoff
	logger  *slog.Logger
	sent    atomic.Uint64 // number of writes of commands on all connections
	done    chan struct{} // closed by Close
	ctx     context.Context
	cancel  context.CancelFunc
	running sync.WaitGroup // goroutines of listeners and of the probe
	calls   *gopool.Pool

	probeScript *Script
	checked     atomic.Bool // the settings were reported

	mu        sync.Mutex
	closed    bool
	listeners map[*Listener]struct{}
	watchers  netconn.Watchers
	probing   bool
	state     broker.ConnState
	reason    error
	blockedBy string    // key of a write that was refused
	lastOK    time.Time // time of the last answer

	socketsMu sync.Mutex
	sockets   map[*socket]struct{} // nil: closed
}

// New checks the configuration and returns a Conn, or all problems joined in one error. It does not
// connect and starts no goroutine.
func New(cfg Config) (*Conn, error) {
	o, err := cfg.options()
	if err != nil {
		return nil, err
	}
	c := &Conn{
		servers:   strings.Join(o.Addrs, " or "),
		backoff:   task.Backoff{Base: cfg.Redis.MinRetryBackoff, Max: cfg.Redis.MaxRetryBackoff},
		logger:    cfg.Logger,
		done:      make(chan struct{}),
		listeners: make(map[*Listener]struct{}),
		sockets:   make(map[*socket]struct{}),
		calls:     gopool.New(),
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

// client is a [*redis.Client] or [*redis.ClusterClient]. redis.UniversalClient would link the types
// of all six hundred commands.
type client interface {
	Process(ctx context.Context, cmd redis.Cmder) error
	Ping(ctx context.Context) *redis.StatusCmd
	Subscribe(ctx context.Context, channels ...string) *redis.PubSub
	Close() error
}

// newClient makes a client like redis.NewUniversalClient: for Sentinel with a MasterName, for a
// cluster with several addresses or IsClusterMode, otherwise for one server. It also sets an option
// of cluster clients that the universal options lack.
func newClient(o *redis.UniversalOptions) client {
	switch {
	case o.MasterName != "" && o.IsClusterMode:
		return redis.NewFailoverClusterClient(o.Failover())
	case o.MasterName != "":
		return redis.NewFailoverClient(o.Failover())
	case len(o.Addrs) > 1 || o.IsClusterMode:
		co := o.Cluster()
		// routing policies ask each node for its commands; scripts are routed by their keys
		co.DisableRoutingPolicies = true
		return redis.NewClusterClient(co)
	}
	return redis.NewClient(o.Simple())
}

// Clustered reports whether the servers form a cluster, in which all keys of one script must be in
// one slot.
func (c *Conn) Clustered() bool {
	_, ok := c.client.(*redis.ClusterClient)
	return ok
}

// Done returns a channel that Close closes.
func (c *Conn) Done() <-chan struct{} { return c.done }

// Backoff returns the delays of the Conn between attempts.
func (c *Conn) Backoff() task.Backoff { return c.backoff }

// Close ends all listeners, watchers and waiting calls, and closes all connections. Watchers get
// the state Disconnected with ErrClosed. Close waits for running functions of a [ListenerConfig].
// If ctx ends first it returns ctx's error, and those functions end by themselves. Further calls
// only wait. It takes c.mu and the mutexes of the listeners, but not while it waits.
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
		c.closeSockets() // otherwise a handshake with a silent server would delay the following steps
		for _, l := range ls {
			l.Close()
		}
		_ = c.client.Close() // its error only says that a connection is closed already
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

// start runs fn on a goroutine for which Close waits, and returns true at once. After Close it
// returns false and does not call fn. Call it with c.mu held.
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

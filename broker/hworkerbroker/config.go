package hworkerbroker

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/swarmiji/swarmiji/internal/redisconn"
)

// The defaults of [Config], most of them hworker's.
const (
	DefaultTimeout    = 120 * time.Second
	DefaultFailedSize = 1000
	DefaultPollEvery  = 10 * time.Millisecond
	DefaultMaxBody    = 64 << 20
)

const (
	minTimeout   = 100 * time.Millisecond
	rounds       = 10 // a monitor looks as often in a timeout
	slowestPolls = 25 // times PollEvery is the longest gap between two looks at an empty queue
)

// Config says where Redis is and how jobs are kept. Redis or Client is all that must be set.
type Config struct {
	// Redis says how to reach the server: one, or one behind Sentinel. Cluster is refused, since the four keys of a queue
	// lie in different slots.
	Redis *redis.UniversalOptions
	// Client, in place of Redis, is a client that the program has already: its server, its
	// credentials, its dialer and its limits are used. The connections are the Broker's own, since
	// those of a client repeat commands whose answer was lost.
	Client *redis.Client

	// Timeout is how long a job may be in progress before a monitor takes its worker for dead and queues it again, at the
	// front. All workers and monitors of a queue should agree on it. 0: 120 s; the least is 100 ms.
	Timeout time.Duration
	// Heartbeat renews the start times of jobs that this process holds, so that they may take longer than Timeout. hworker
	// has none; with it off a job that takes longer runs a second time while it still runs (its context ends as soon as
	// that is noticed), and a retry that is to wait longer than Timeout comes early.
	Heartbeat bool
	// NoMonitor leaves it to other processes to take back the jobs of dead workers. If nobody does they are never run again.
	NoMonitor bool
	// FailedSize is how many failed jobs a queue keeps; older ones are dropped. 0: 1,000.
	FailedSize int
	// PollEvery is the pause before a second look at a queue that was found empty. It doubles with each further look, up to
	// 25 times as long: with the default an idle subscription looks four times a second, which costs about 0.2 % of a core.
	// A job that this process queues itself is noticed at once. 0: 10 ms.
	PollEvery time.Duration
	// MaxBody is the largest body in bytes that is sent; a larger one is broker.ErrTooLarge. 0: 64 MiB.
	MaxBody int

	// Logger is told of what no call returns: jobs that cannot be read, jobs taken back, why a job failed. Nil:
	// slog.Default().
	Logger *slog.Logger
}

// check fills in the defaults and returns all problems.
func (c *Config) check() error {
	var errs []error
	if c.Client != nil && c.Redis == nil {
		c.Redis, c.Client = redisconn.OptionsOf(c.Client), nil
	}
	switch {
	case c.Client != nil:
		errs = append(errs, errors.New("hworkerbroker: Redis and Client are both set"))
	case c.Redis == nil:
		errs = append(errs, errors.New("hworkerbroker: neither Redis nor Client is set"))
	case c.Redis.IsClusterMode || len(c.Redis.Addrs) > 1 && c.Redis.MasterName == "":
		errs = append(errs, errors.New("hworkerbroker: the four keys of a queue lie in different slots of a cluster"))
	}
	if c.Timeout == 0 {
		c.Timeout = DefaultTimeout
	}
	if c.Timeout < minTimeout {
		errs = append(errs, fmt.Errorf("hworkerbroker: timeout %v is below %v", c.Timeout, minTimeout))
	}
	if c.FailedSize == 0 {
		c.FailedSize = DefaultFailedSize
	}
	if c.FailedSize < 0 {
		errs = append(errs, fmt.Errorf("hworkerbroker: failed size %d is negative", c.FailedSize))
	}
	if c.PollEvery == 0 {
		c.PollEvery = DefaultPollEvery
	}
	if c.PollEvery < 0 {
		errs = append(errs, fmt.Errorf("hworkerbroker: poll every %v is negative", c.PollEvery))
	}
	if c.MaxBody == 0 {
		c.MaxBody = DefaultMaxBody
	}
	if c.MaxBody < 0 {
		errs = append(errs, fmt.Errorf("hworkerbroker: largest body %d is negative", c.MaxBody))
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return errors.Join(errs...)
}

package hworkerbroker

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/swarmiji/swarmiji/internal/redisconn"
)

// The defaults of [Config]. Most are hworker's.
const (
	DefaultTimeout    = 120 * time.Second
	DefaultFailedSize = 1000
	DefaultPollEvery  = 10 * time.Millisecond
	DefaultMaxBody    = 64 << 20
)

const (
	minTimeout       = 100 * time.Millisecond
	checksPerTimeout = 10 // checks of a monitor within a timeout
	// the longest pause between two polls of an empty queue is this many times PollEvery
	slowestPolls = 25
)

// Config holds the address of Redis and the settings of jobs. Only Redis or Client must be set.
type Config struct {
	// Redis holds the address of the server and the client's options: one server, or one behind
	// Sentinel. A cluster is refused, because the four keys of a queue are in different slots.
	Redis *redis.UniversalOptions
	// Client may be set instead of Redis, to use the server, credentials, dialer and limits of an
	// existing client. The Broker opens its own connections, because a client's connections repeat
	// commands whose answer was lost.
	Client *redis.Client

	// Timeout limits the time that a job may be in progress. After it a monitor regards its worker as
	// dead and returns the job to the front of the queue. All workers and monitors of a queue should
	// have the same. Default: 120 s. Minimum: 100 ms.
	Timeout time.Duration
	// Heartbeat makes the Broker renew the start times of its jobs, so that they may run for longer
	// than Timeout. hworker has no heartbeat.
	//
	// Without it, a job that runs for longer is started a second time while it still runs. Its context
	// ends as soon as that is noticed. A retry with a delay longer than Timeout comes early.
	Heartbeat bool
	// NoMonitor turns the monitor off. Other processes must then return the jobs of dead workers to
	// the queue, or they never run again.
	NoMonitor bool
	// FailedSize limits the failed jobs of a queue. Older ones are dropped. Default: 1,000.
	FailedSize int
	// PollEvery is the pause before the next poll of an empty queue. It doubles with each poll up to
	// 25 times. With the default an idle subscription polls four times a second, which costs about 0.2
	// % of a core. A job that this process publishes is noticed at once. Default: 10 ms.
	PollEvery time.Duration
	// MaxBody limits the body of a message, in bytes. A larger body is broker.ErrTooLarge. Default: 64
	// MiB.
	MaxBody int

	// Logger receives reports that no call returns: jobs that cannot be read, jobs returned to the
	// queue, and why a job failed. Default: slog.Default().
	Logger *slog.Logger
}

// check sets the defaults in c, and Redis from Client if only Client is set. It returns all
// problems joined, nil if c is valid: no address or two, a cluster, a Timeout below minTimeout,
// negative numbers.
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
		errs = append(errs, errors.New("hworkerbroker: a cluster is not supported: the keys of a queue are in different slots"))
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
		errs = append(errs, fmt.Errorf("hworkerbroker: FailedSize %d is negative", c.FailedSize))
	}
	if c.PollEvery == 0 {
		c.PollEvery = DefaultPollEvery
	}
	if c.PollEvery < 0 {
		errs = append(errs, fmt.Errorf("hworkerbroker: PollEvery %v is negative", c.PollEvery))
	}
	if c.MaxBody == 0 {
		c.MaxBody = DefaultMaxBody
	}
	if c.MaxBody < 0 {
		errs = append(errs, fmt.Errorf("hworkerbroker: MaxBody %d is negative", c.MaxBody))
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return errors.Join(errs...)
}

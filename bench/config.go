package main

import (
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/swarmiji/swarmiji/open"
)

// config holds the values of the flags.
type config struct {
	Broker      string
	Workload    string
	N           int
	Payload     int
	Concurrency int
	Workers     int
	Prefetch    int
	Raw         bool
	Multiple    bool
	Plain       bool
	Results     bool
	Events      bool
	Metrics     bool
	Queue       string
	Queues      int
	Declared    int
	For         time.Duration
	Hold        bool
	Timeout     time.Duration
	CPUProfile  string
	MemProfile  string
}

// register defines the flags. args builds the flags of drain's other process from the same fields.
func (c *config) register(fs *flag.FlagSet) {
	fs.StringVar(&c.Broker, "broker", "mem://", "URL of the broker")
	fs.StringVar(&c.Workload, "workload", "e2e", "enqueue, drain, e2e, roundtrip, idle, due, delayed or long")
	fs.IntVar(&c.N, "n", 50_000, "number of tasks")
	fs.IntVar(&c.Payload, "payload", 100, "bytes of a task's argument, at least 8")
	fs.IntVar(&c.Concurrency, "concurrency", 1, "concurrent Submits or callers, and the prefetch unless -prefetch says otherwise")
	fs.IntVar(&c.Workers, "workers", 0, "handlers that run at once; 0: one for each core")
	fs.IntVar(&c.Prefetch, "prefetch", 0, "prefetch of the consumer; 0: the concurrency; -1: the library's default, which follows the work")
	fs.BoolVar(&c.Raw, "raw", false, "do the same work with the bare client of the broker")
	fs.BoolVar(&c.Multiple, "multiple", false, "with -raw on amqp: acknowledge 64 deliveries at once")
	fs.BoolVar(&c.Plain, "plain", false, "with -raw on nats: one plain subject, no message ids, acknowledgements nobody waits for")
	fs.BoolVar(&c.Results, "results", false, "store results instead of ignoring them")
	fs.BoolVar(&c.Events, "events", false, "send all events, to one listener; e2e ends when it has heard them all")
	fs.BoolVar(&c.Metrics, "metrics", false, "count in a registry, which is read twice a second")
	fs.StringVar(&c.Queue, "queue", "", "name of the queue, which is removed at the end; \"\": a new one")
	fs.IntVar(&c.Queues, "queues", 1, "with idle: how many queues the consumer consumes")
	fs.IntVar(&c.Declared, "declared", 0, "with idle: how many queues are declared, if more than are consumed")
	fs.DurationVar(&c.For, "for", 10*time.Second, "with idle: the time of the measurement")
	fs.BoolVar(&c.Hold, "hold", false, "with long on postgres: hold a REPEATABLE READ transaction open")
	fs.DurationVar(&c.Timeout, "timeout", 5*time.Minute, "give up after this time")
	fs.StringVar(&c.CPUProfile, "cpuprofile", "", "write a profile of the processor time to this file")
	fs.StringVar(&c.MemProfile, "memprofile", "", "write a profile of all allocations to this file")
}

// complete checks the flags and sets the values that depend on others.
func (c *config) complete() error {
	var errs []error
	if c.N < 2 {
		errs = append(errs, errors.New("-n must be at least 2"))
	}
	if c.Payload < stampSize {
		errs = append(errs, fmt.Errorf("-payload must be at least %d", stampSize))
	}
	if c.Concurrency < 1 {
		errs = append(errs, errors.New("-concurrency must be at least 1"))
	}
	if c.Raw && (c.local() || c.Events || c.Metrics) {
		errs = append(errs, errors.New("-raw is a bare client: it has no memory broker, -events or -metrics"))
	}
	if t := c.technology(); c.Raw && c.Results && t != techAMQP && t != techRedis && t != techNATS {
		errs = append(errs, errors.New("-raw with -results needs amqp://, redis:// or nats://"))
	}
	if c.Queues < 1 || c.Raw && c.Queues+c.Declared > 1 {
		errs = append(errs, errors.New("-queues must be at least 1, and goes without -raw"))
	}
	if c.Multiple && (!c.Raw || c.technology() != techAMQP) {
		errs = append(errs, errors.New("-multiple goes with -raw on amqp://"))
	}
	if c.Plain && (!c.Raw || c.technology() != techNATS) {
		errs = append(errs, errors.New("-plain goes with -raw on nats://"))
	}
	if c.Workload == "roundtrip" && !c.Raw {
		c.Results = true
	}
	if c.Prefetch == 0 {
		c.Prefetch = c.Concurrency
	}
	if c.Queue == "" {
		c.Queue = prefix + strings.ToLower(rand.Text()[:10])
	}
	if !strings.HasPrefix(c.Queue, prefix) {
		errs = append(errs, errors.New("-queue must begin with "+prefix+": all that has the name is removed in the end"))
	}
	return errors.Join(errs...)
}

// prefix is the beginning of the names of the benchmark's queues.
const prefix = "bench-"

// names returns the names of the first n queues.
func (c *config) names(n int) []string {
	names := []string{c.Queue}
	for i := 1; i < n; i++ {
		names = append(names, c.Queue+"-"+strconv.Itoa(i))
	}
	return names
}

// args returns the flags of a process that runs another workload on the same queue.
func (c *config) args(workload string) []string {
	return []string{
		"-broker", c.Broker, "-workload", workload, "-n", strconv.Itoa(c.N), "-payload", strconv.Itoa(c.Payload), "-queue", c.Queue,
		"-raw=" + strconv.FormatBool(c.Raw), "-results=" + strconv.FormatBool(c.Results), "-events=" + strconv.FormatBool(c.Events),
		"-timeout", c.Timeout.String(),
	}
}

// The technologies of brokers.
const (
	techMemory   = "mem"
	techEmbedded = "nats-embedded"
	techAMQP     = "amqp"
	techNATS     = "nats"
	techRedis    = "redis"
	techHworker  = "hworker"
	techPostgres = "postgres"
	techSQLite   = "sqlite"
)

// technology returns the technology of the broker's URL.
func (c *config) technology() string {
	scheme, _, _ := strings.Cut(c.Broker, "://")
	switch scheme {
	case "tls":
		return techNATS
	case techEmbedded:
		return techEmbedded
	}
	for _, t := range []string{techMemory, techAMQP, techNATS, techRedis, techHworker, techPostgres, techSQLite} {
		if strings.HasPrefix(scheme, t) {
			return t
		}
	}
	return scheme
}

// local reports whether no other process can reach the broker.
func (c *config) local() bool {
	return c.technology() == techMemory || c.technology() == techEmbedded && !strings.Contains(c.Broker, "listen=")
}

// namespaced returns the broker's URL. If namespaces are cheap, it adds a separate namespace, so
// that remains of other runs have no effect.
func (c *config) namespaced() string {
	if t := c.technology(); t != techNATS && t != techRedis && t != techEmbedded || strings.Contains(c.Broker, "namespace=") {
		return c.Broker
	}
	if strings.Contains(c.Broker, "?") {
		return c.Broker + "&namespace=" + c.Queue
	}
	return c.Broker + "?namespace=" + c.Queue
}

// address returns the broker's URL without user, password and parameters.
func (c *config) address() string { return open.Redact(c.Broker) }

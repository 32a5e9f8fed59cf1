package main

import (
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// config is what the flags say.
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
	Results     bool
	Events      bool
	Queue       string
	Timeout     time.Duration
	CPUProfile  string
	MemProfile  string
}

// register makes the flags. Those of the other process of drain are made from the same fields by args.
func (c *config) register(fs *flag.FlagSet) {
	fs.StringVar(&c.Broker, "broker", "mem://", "URL of the broker")
	fs.StringVar(&c.Workload, "workload", "e2e", "enqueue, drain, e2e, roundtrip or idle")
	fs.IntVar(&c.N, "n", 50_000, "number of tasks")
	fs.IntVar(&c.Payload, "payload", 100, "bytes of a task's argument, at least 8")
	fs.IntVar(&c.Concurrency, "concurrency", 1, "concurrent Submits or callers, and the prefetch unless -prefetch says otherwise")
	fs.IntVar(&c.Workers, "workers", 0, "handlers that run at once; 0: one for each core")
	fs.IntVar(&c.Prefetch, "prefetch", 0, "prefetch of the consumer; 0: the concurrency; -1: the library's default, 4 for each worker")
	fs.BoolVar(&c.Raw, "raw", false, "do the same work with the bare AMQP client")
	fs.BoolVar(&c.Multiple, "multiple", false, "with -raw: acknowledge 64 deliveries at once")
	fs.BoolVar(&c.Results, "results", false, "store results instead of ignoring them")
	fs.BoolVar(&c.Events, "events", false, "send all events, to one listener")
	fs.StringVar(&c.Queue, "queue", "", "name of the queue, which is removed at the end; \"\": a new one")
	fs.DurationVar(&c.Timeout, "timeout", 5*time.Minute, "give up after this time")
	fs.StringVar(&c.CPUProfile, "cpuprofile", "", "write a profile of the processor time to this file")
	fs.StringVar(&c.MemProfile, "memprofile", "", "write a profile of all allocations to this file")
}

// complete checks the flags and fills in what follows from others.
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
	if c.Raw && (c.memory() || c.Results || c.Events) {
		errs = append(errs, errors.New("-raw is the bare AMQP client: it has no memory broker, -results or -events"))
	}
	if c.Multiple && !c.Raw {
		errs = append(errs, errors.New("-multiple goes with -raw"))
	}
	if c.Workload == "roundtrip" && !c.Raw {
		c.Results = true
	}
	if c.Prefetch == 0 {
		c.Prefetch = c.Concurrency
	}
	if c.Queue == "" {
		c.Queue = "bench-" + strings.ToLower(rand.Text()[:10])
	}
	return errors.Join(errs...)
}

// args are the flags of a process that does another workload on the same queue.
func (c *config) args(workload string) []string {
	return []string{
		"-broker", c.Broker, "-workload", workload, "-n", strconv.Itoa(c.N), "-payload", strconv.Itoa(c.Payload), "-queue", c.Queue,
		"-raw=" + strconv.FormatBool(c.Raw), "-results=" + strconv.FormatBool(c.Results), "-events=" + strconv.FormatBool(c.Events),
		"-timeout", c.Timeout.String(),
	}
}

func (c *config) memory() bool { return strings.HasPrefix(c.Broker, "mem:") }

// address is the broker's without user and password.
func (c *config) address() string {
	u, err := url.Parse(c.Broker)
	if err != nil {
		return "unreadable"
	}
	u.User = nil
	return u.String()
}

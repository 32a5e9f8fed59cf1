package consumer

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/swarmiji/swarmiji/internal/utf"
)

// DefaultPollInterval is the default of Poll.Interval.
const DefaultPollInterval = 50 * time.Millisecond

// Poll is a set of workers that take tasks of several queues in strict order. They take a task of a
// later queue only while all earlier queues are empty. Running tasks are not interrupted.
type Poll struct {
	// Queues are the names of the queues, the most urgent first. A name that is missing in
	// Config.Queues has default settings. A queue belongs to at most one Poll.
	Queues []string
	// Workers is the number of handlers that run at once, for all queues together. Default:
	// runtime.GOMAXPROCS. The prefetch of each queue is a multiple of it, as in QueueConfig.
	Workers int
	// Interval sets the time for which an earlier queue must be empty before a task of a later queue
	// is taken. Its next task may still be on its way. Default: 50ms.
	Interval time.Duration
	// Share prevents that later queues starve. Of each Share tasks, one is taken from the queues in
	// rotation. At least 2. Default: 0, later queues wait as long as the first one has tasks.
	Share int
}

// completePolls replaces c.Polls by a copy with its defaults. It adds the queues of the polls to
// queues, with the workers of their poll. Returns all problems, joined: a poll without queues, a
// negative number, Share 1, and a queue in two polls or with workers of its own.
func (c *Config) completePolls(queues map[string]QueueConfig) error {
	var errs []error
	c.Polls = slices.Clone(c.Polls)
	polled := make(map[string]bool)
	for i := range c.Polls {
		p := &c.Polls[i]
		p.Workers = cmp.Or(p.Workers, defaultWorkers())
		p.Interval = cmp.Or(p.Interval, DefaultPollInterval)
		if len(p.Queues) == 0 || p.Workers < 0 || p.Interval < 0 || p.Share < 0 || p.Share == 1 {
			errs = append(errs, fmt.Errorf("config: Polls[%d]: need queues, Workers and Interval >= 0 and Share 0 or >= 2; found %d queues, Workers %d, Interval %s, Share %d", i, len(p.Queues),
				p.Workers, p.Interval, p.Share))
		}
		for _, name := range p.Queues {
			q := queues[name]
			switch {
			case polled[name]:
				errs = append(errs, fmt.Errorf("config: Polls: queue %q belongs to two polls or is named twice", utf.Cut(name, 128)))
			case q.Workers != 0 || q.Autoscale != nil:
				errs = append(errs, fmt.Errorf("config: Queues: %q belongs to a poll; set its workers in Polls", utf.Cut(name, 128)))
			}
			polled[name] = true
			q.Workers = p.Workers
			queues[name] = q
		}
	}
	return errors.Join(errs...)
}
